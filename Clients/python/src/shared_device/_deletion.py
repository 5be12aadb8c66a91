"""Deletes a user's folder as a whole."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat


def delete_folder(path: str | os.PathLike[str]) -> None:
    """Deletes a folder with its contents, for a cleanup step. When it returns, the folder is gone, also from the disk.

    A missing folder is no error. Symbolic links are removed and never followed. Raises `OSError` if anything is left.
    """
    folder = pathlib.Path(path)
    try:
        # A folder that cannot be inspected is an error and does not count as absent.
        mode = os.lstat(folder).st_mode
    except (FileNotFoundError, NotADirectoryError):
        pass
    else:
        if stat.S_ISDIR(mode):
            shutil.rmtree(folder)
        else:
            folder.unlink()
    parent = folder.parent
    try:
        os.lstat(parent)
    except (FileNotFoundError, NotADirectoryError):
        return
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
