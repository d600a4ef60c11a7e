#!/usr/bin/python3
"""Lay folders, files and links where they belong, in one go: a round trip for each would be most of a play's time."""

import difflib
import os
import pwd
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: deborgen_place
short_description: Lay folders, files and links where they belong
description: [Does for many paths in one go what file, copy and template do for one.]
options:
  owner: {description: "Whose they are, with the group of that name, where an entry says nothing else.", type: str}
  folders: {description: Folders to have., type: list, elements: dict}
  files: {description: Files to have. Their content ends with a newline., type: list, elements: dict}
  links: {description: Symbolic links to have. A link may point to what is not there yet., type: list, elements: dict}
author: [deborgen]
"""
EXAMPLES = """
- name: Lay the files of a service
  deborgen_place:
    folders:
      - {path: /var/lib/service, owner: service, mode: "0700"}
    files:
      - {path: /etc/service.conf, content: "key = value", mode: "0640", group: service}
    links:
      - {path: /usr/local/bin/service, to: /opt/service/bin/service}
"""
RETURN = """
placed: {description: The paths that were not as they should be., type: list, returned: always}
"""

WHOSE = {"path": {"type": "path", "required": True}, "owner": {}, "group": {}}
SPEC = {
    "owner": {"default": "root"},
    "folders": {"type": "list", "elements": "dict", "default": [], "options": {**WHOSE, "mode": {"default": "0755"}}},
    "files": {
        "type": "list", "elements": "dict", "default": [],
        # Not for any log: a file of settings may hold a password.
        "options": {**WHOSE, "mode": {"default": "0644"}, "content": {"required": True, "no_log": True}},
    },
    "links": {
        "type": "list", "elements": "dict", "default": [],
        "options": {"path": WHOSE["path"], "to": {"type": "str", "required": True}},
    },
}  # fmt: skip


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    placed, diffs = [], []
    for kind, place in (("folders", folder), ("files", file), ("links", link)):
        for entry in module.params[kind]:
            if place(module, entry, diffs):
                placed.append(entry["path"])
    module.exit_json(changed=bool(placed), placed=placed, diff=[{"prepared": "".join(diffs)}] if diffs else [])


def folder(module, entry, diffs):
    path = Path(entry["path"])
    missing = not path.is_dir()
    if missing:
        diffs.append(f"the folder {path}\n")
        if not module.check_mode:
            path.mkdir(0o700)
    return belongs(module, entry, missing)


def file(module, entry, diffs):
    path, content = Path(entry["path"]), entry["content"].rstrip("\n") + "\n"
    old = path.read_text(errors="replace") if path.exists() else ""
    differs = old != content
    if differs:
        lines = difflib.unified_diff(old.splitlines(True), content.splitlines(True), str(path), str(path))
        for_everyone = entry["mode"][-1] != "0"
        diffs.append("".join(lines) if for_everyone else f"{path}, which not everyone may read\n")
        if not module.check_mode:
            write(module, entry, content)
    return belongs(module, entry, differs)


def write(module, entry, content):
    """Owner and mode are right before the file is in its place: a secret is never open, not for a moment."""
    handle, new = tempfile.mkstemp(dir=Path(entry["path"]).parent, prefix=".deborgen-")
    with os.fdopen(handle, "w") as stream:
        stream.write(content)
    belongs(module, {**entry, "path": new}, True)
    Path(new).replace(entry["path"])


def link(module, entry, diffs):
    path = Path(entry["path"])
    if path.is_symlink() and str(path.readlink()) == entry["to"]:
        return False
    if path.exists() and not path.is_symlink():
        module.fail_json(msg=f"{path} is in the way: it is no link, and not ours")
    diffs.append(f"the link {path} to {entry['to']}\n")
    if not module.check_mode:
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(entry["to"])
        new.replace(path)
    return True


def belongs(module, entry, changed):
    """See that owner, group and mode are right, where there is something already."""
    if not Path(entry["path"]).exists():
        return changed
    owner = entry["owner"] or module.params["owner"]
    if module.check_mode and owner not in [account.pw_name for account in pwd.getpwall()]:
        return True
    wanted = {"path": entry["path"], "owner": owner, "group": entry["group"] or owner, "mode": entry["mode"]}
    return module.set_fs_attributes_if_different(
        module.load_file_common_arguments({**module.params, **wanted}), changed
    )


if __name__ == "__main__":
    main()
