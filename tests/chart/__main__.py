"""Write knative/chart: `make chart`."""

from tests.chart import digests
from tests.chart.files import BY_HAND, CHART, render

made = render()
for name, text in made.items():
    (CHART / name).write_text(text)
for path in CHART.rglob("*"):
    if path.is_file() and str(path.relative_to(CHART)) not in {*made, *BY_HAND}:
        path.unlink()
digests.write()
print(f"{len(made)} files in {CHART}")
