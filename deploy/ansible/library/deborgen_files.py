#!/usr/bin/python3
"""Make folders, files and links in one round trip. A round trip for each would take most of a play's time."""

import difflib
import os
import pwd
import shutil
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: deborgen_files
short_description: Make folders, files and links
description: [Does for many paths in one round trip what file, copy and template do for one.]
options:
  owner: {description: "The owner, and the group of the same name, of entries that name none.", type: str}
  folders: {description: Folders that must exist., type: list, elements: dict}
  files:
    description:
      - Files that must exist. A newline is added at their end.
      - "`check` of a file is a command that judges its new content, in check mode too. If it refuses, nothing is made."
    type: list
    elements: dict
  links: {description: Symbolic links that must exist. Their targets may be missing., type: list, elements: dict}
  keep_old: {description: A folder that gets the old version of each file that is changed., type: path}
author: [deborgen]
"""
EXAMPLES = """
- name: Write the files of a service
  deborgen_files:
    folders:
      - {path: /var/lib/service, owner: service, mode: "0700"}
    files:
      - {path: /etc/service.conf, content: "key = value", mode: "0640", group: service}
    links:
      - {path: /usr/local/bin/service, to: /opt/service/bin/service}
"""
RETURN = """
changed_paths: {description: The paths that were created or changed., type: list, returned: always}
"""

OWNERSHIP = {"path": {"type": "path", "required": True}, "owner": {}, "group": {}}
SPEC = {
    "owner": {"default": "root"},
    "keep_old": {"type": "path"},
    "folders": {
        "type": "list", "elements": "dict", "default": [],
        "options": {**OWNERSHIP, "mode": {"default": "0755"}},
    },
    "files": {
        "type": "list", "elements": "dict", "default": [],
        # Kept out of every log: a settings file may hold a password.
        "options": {
            **OWNERSHIP, "mode": {"default": "0644"}, "content": {"required": True, "no_log": True},
            "check": {"type": "list", "elements": "str", "default": []},
        },
    },
    "links": {
        "type": "list", "elements": "dict", "default": [],
        "options": {"path": OWNERSHIP["path"], "to": {"type": "str", "required": True}},
    },
}  # fmt: skip


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    changed_paths, diffs = [], []
    if module.params["keep_old"] and not module.check_mode:
        shutil.rmtree(module.params["keep_old"], ignore_errors=True)
    refused = [line for entry in module.params["files"] if entry["check"] for line in refusals(module, entry)]
    if refused:
        reason = "Nothing was changed, because the program refuses its new settings:"
        module.fail_json(msg="\n".join([reason, *refused]))
    for kind, make in (("folders", make_folder), ("files", make_file), ("links", make_link)):
        for entry in module.params[kind]:
            if make(module, entry, diffs):
                changed_paths.append(entry["path"])
    diff = [{"prepared": "".join(diffs)}] if diffs else []
    module.exit_json(changed=bool(changed_paths), changed_paths=changed_paths, diff=diff)


def make_folder(module, entry, diffs):
    path = Path(entry["path"])
    missing = not path.is_dir()
    if missing:
        diffs.append(f"the folder {path}\n")
        if not module.check_mode:
            path.mkdir(0o700)
    return set_owner_and_mode(module, entry, missing)


def text_of(entry):
    return entry["content"].rstrip("\n") + "\n"


def old_text(path):
    return path.read_text(errors="replace") if path.exists() else ""


#: The exit code of `check-config` for a file that the program refuses. A release without that command has another one.
REFUSED = 3


def refusals(module, entry):
    """What the program says against the file's new content, which it reads beside the old."""
    path = Path(entry["path"])
    if old_text(path) == text_of(entry) or not path.parent.is_dir() or not shutil.which(entry["check"][0]):
        return []
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".deborgen-")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text_of(entry))
        code, _, said = module.run_command([*entry["check"], draft])
    finally:
        Path(draft).unlink()
    return [line.replace(draft, str(path)) for line in said.splitlines()] if code == REFUSED else []


def make_file(module, entry, diffs):
    path, content = Path(entry["path"]), text_of(entry)
    old = old_text(path)
    differs = old != content
    if differs:
        lines = difflib.unified_diff(old.splitlines(True), content.splitlines(True), str(path), str(path))
        for_everyone = entry["mode"][-1] != "0"
        diffs.append("".join(lines) if for_everyone else f"{path} (hidden, because not everyone may read it)\n")
        if not module.check_mode:
            write(module, entry, content)
    return set_owner_and_mode(module, entry, differs)


def write(module, entry, content):
    """Set owner and mode before the file gets its name: others can never read a secret, not even for a moment."""
    handle, new = tempfile.mkstemp(dir=Path(entry["path"]).parent, prefix=".deborgen-")
    with os.fdopen(handle, "w") as stream:
        stream.write(content)
    set_owner_and_mode(module, {**entry, "path": new}, True)
    if module.params["keep_old"] and Path(entry["path"]).exists():
        kept = Path(module.params["keep_old"] + entry["path"])
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(entry["path"], kept)
        shutil.chown(kept, *(Path(entry["path"]).owner(), Path(entry["path"]).group()))
    Path(new).replace(entry["path"])


def make_link(module, entry, diffs):
    path = Path(entry["path"])
    if path.is_symlink() and str(path.readlink()) == entry["to"]:
        return False
    if path.exists() and not path.is_symlink():
        module.fail_json(msg=f"{path} exists and is not a link; move it away, then run this again")
    diffs.append(f"the link {path} to {entry['to']}\n")
    if not module.check_mode:
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(entry["to"])
        new.replace(path)
    return True


def set_owner_and_mode(module, entry, changed):
    """Correct owner, group and mode of a path that exists. Returns whether the path was changed."""
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
