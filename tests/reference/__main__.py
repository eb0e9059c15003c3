"""Write the pages of docs/reference: `make docs`."""

from tests.reference.pages import FOLDER, render

FOLDER.mkdir(parents=True, exist_ok=True)
for name, text in render().items():
    (FOLDER / name).write_text(text)
    print(FOLDER / name)
