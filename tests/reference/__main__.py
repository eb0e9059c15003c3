"""Write the pages and schemas of docs/reference, the man page, and the index of the shell completion: `make docs`."""

from tests.reference.pages import render_all

for path, text in render_all().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)
