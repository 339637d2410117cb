"""Two adaptations of the build.

* A page may link to files of the repository outside docs/: they are copied into the site, under repo/. A link such as
  `../results/minimal.png` then works on the site as it does in the repository itself.
* `Example:` and `References:` of docstrings become code and a list.
"""

import posixpath
import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File

LINK = re.compile(r"(\]\()([^)#\s]+)")


def outside(target, src_uri):
    """Return the path in the repository that a link leads to if that is outside docs/, else None."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(src_uri), target))
    return None if path.startswith("docs/") else path


def on_files(files, config):
    root = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        for _, target in LINK.findall(page.content_string):
            path = outside(target, page.src_uri)
            if path and (root / path).is_file() and f"repo/{path}" not in files.src_uris:
                files.append(File.generated(config, f"repo/{path}", abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)

    def rewrite(match):
        path = outside(match[2], page.file.src_uri)
        if path is None or f"repo/{path}" not in files.src_uris:
            return match[0]
        return match[1] + posixpath.relpath(f"repo/{path}", here or ".")

    return LINK.sub(rewrite, markdown)


class Sections(griffe.Extension):
    """Say `Example:` as Griffe wants it, in the plural, and turn the bars of `References:` into a list."""

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^( *)\| ", r"\1- ", text, flags=re.MULTILINE)
