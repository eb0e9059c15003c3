"""Write the pages and schemas of docs/reference, the man page, and the index of the shell completion: `make docs`."""

from shared.cli.completion.index import INDEX
from tests.reference import completion, manpage
from tests.reference.pages import FOLDER, render, render_files

files = {
    **{FOLDER / name: text for name, text in (render() | render_files()).items()},
    **{manpage.FOLDER / name: text for name, text in manpage.render().items()},
    INDEX: completion.render(),
}
for path, text in files.items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)
