"""A person's folder, gone as a whole."""

from __future__ import annotations

import os
import pathlib
import shutil


def delete_folder(path: str | os.PathLike[str]) -> None:
    """Deletes a folder with all that is in it, for a cleanup step: on return it is gone, also from the disk. If there is none, that is fine.

    Symbolic links are removed and never followed. Raises `OSError` if anything is left.
    """
    folder = pathlib.Path(path)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    parent = folder.parent
    if not parent.exists():
        return
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
