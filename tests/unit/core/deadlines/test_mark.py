"""The mark that `enforce` writes, and how it is read back."""

import pytest

from shared.core.deadlines.deadline import Mark, mark_annotations, read_mark
from tests.builders import NOW, ago, annotated, created, having, job, not_none


@pytest.mark.parametrize(("before", "stops"), [(None, 1), (Mark(ago(60), 1, "2"), 2), (Mark(ago(60), 41), 42)])
@pytest.mark.parametrize(("generation", "written"), [(1, "2"), (41, "42"), (None, ""), ("7", "")])
def test_mark_is_read_back_as_it_was_written(before, stops, generation, written):
    obj = having(job(), "metadata.generation", generation)
    marked = having(obj, "metadata.annotations", mark_annotations(obj, NOW, before))

    assert read_mark(marked) == Mark(NOW, stops, written)


def test_mark_is_untouched_while_the_spec_is_what_the_stop_made_of_it():
    obj = having(job(), "metadata.generation", 4)
    marked = having(obj, "metadata.annotations", mark_annotations(obj, NOW, None))

    states = [having(marked, "metadata.generation", generation) for generation in (5, 4, 6, "5", None, 5.0)]
    marks = [(not_none(read_mark(one)), one) for one in states]
    assert [mark.is_untouched(one) for mark, one in marks] == [True, False, False, False, False, False]
    assert [mark.is_changed(one) for mark, one in marks] == [False, True, True, True, True, True]


def test_mark_without_a_generation_is_neither_untouched_nor_changed():
    mark = Mark(NOW, 1)

    assert not mark.is_untouched(having(job(), "metadata.generation", 4))
    assert not mark.is_changed(having(job(), "metadata.generation", 4))


def test_object_that_was_never_stopped_has_no_mark():
    assert read_mark(job()) is None
    assert read_mark(annotated(job(), stops="3", stopped_generation="4")) is None


@pytest.mark.parametrize(("seconds", "is_its_own"), [(-1, False), (0, True), (1, True)])
def test_mark_from_before_the_creation_is_of_another_object(seconds, is_its_own):
    obj = annotated(created(job(), ago(60)), deadline_exceeded=ago(60 - seconds))

    assert (read_mark(obj) is not None) is is_its_own


@pytest.mark.parametrize("at", [None, "soon", 5, []])
def test_mark_of_an_object_of_unknown_age_counts(at):
    obj = annotated(having(job(), "metadata.creationTimestamp", at), deadline_exceeded=ago(60))

    assert read_mark(obj) == Mark(ago(60), 1)
