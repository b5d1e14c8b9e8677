"""The little of kustomize that ``deploy/`` uses: resources, namespace, strategic merge patches from files, images.

There is no kustomize in the package registries, and that of kubectl 1.20 is of version 2, which knows neither a folder
among ``resources`` nor ``patches``. Anything else in a kustomization is refused here, so that it is not ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "patches", "images"}
CLUSTER_WIDE = {"Namespace"}
MERGE_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def build(folder: Path) -> list[Object]:
    """The objects of a kustomization."""
    asked = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(asked) <= KNOWN, f"{folder}: {sorted(set(asked) - KNOWN)}"
    objects: list[Object] = []
    for name in asked["resources"]:
        place = (folder / name).resolve()
        objects += build(place) if place.is_dir() else documents(place)
    for patch in asked.get("patches", []):
        assert set(patch) == {"path"}
        for change in documents(folder / patch["path"]):
            [target] = [each for each in objects if identity(each) == identity(change)]
            objects[objects.index(target)] = merged(target, change)
    for each in objects:
        if each["kind"] not in CLUSTER_WIDE:
            each["metadata"]["namespace"] = asked["namespace"]
        for subject in each.get("subjects", []):
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = asked["namespace"]
    for image in asked.get("images", []):
        for each in objects:
            replace_image(each, image)
    return objects


def identity(each: Object) -> tuple[str, str, str]:
    """What names an object."""
    return each["apiVersion"], each["kind"], each["metadata"]["name"]


def merged(old: Any, new: Any, key: str = "") -> Any:
    """A strategic merge: mappings key by key, lists of named things by name, other lists as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = {name: merged(old[name], new[name], name) if name in old else new[name] for name in new}
        return {**old, **both}
    if isinstance(old, list) and isinstance(new, list) and key in MERGE_KEYS:
        by = MERGE_KEYS[key]
        changes = {each[by]: each for each in new}
        kept = [merged(each, changes.pop(each[by])) if each[by] in changes else each for each in old]
        return [*kept, *changes.values()]
    return new


def replace_image(value: Any, image: dict[str, str]) -> None:
    """Give containers another image."""
    if isinstance(value, dict):
        name, _, tag = str(value.get("image", "")).rpartition(":")
        if name == image["name"]:
            value["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
        for below in value.values():
            replace_image(below, image)
    elif isinstance(value, list):
        for below in value:
            replace_image(below, image)
