"""The apiVersions of a rule are all of one API group."""

from pydantic_core import PydanticCustomError


def check_one_group(versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return apiVersions that are all of one group.

    Raises:
        PydanticCustomError: They are of several groups; pydantic adds their path in the file.
    """
    if len({version.rpartition("/")[0] for version in versions}) > 1:
        raise PydanticCustomError("one_group", "expected versions of one group")
    return versions
