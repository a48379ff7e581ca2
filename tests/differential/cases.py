"""Stored cases: a folder packed into one small file whose bytes depend only on the content."""
import io
import lzma
import os
import tarfile


def pack(folder, path):
    """Members by name, without owners and times; programs first, so that the compressor finds their common parts."""
    names = sorted(n for n in os.listdir(folder) if n.endswith((".pb", ".npz", ".json")))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(names, key=lambda n: (not n.endswith(".pb"), n)):
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with open(path, "wb") as f:
        f.write(lzma.compress(raw.getvalue(), preset=9))


def unpack(path, folder):
    os.makedirs(folder, exist_ok=True)
    with lzma.open(path) as f, tarfile.open(fileobj=io.BytesIO(f.read())) as archive:
        for member in archive.getmembers():
            with open(os.path.join(folder, os.path.basename(member.name)), "wb") as out:
                out.write(archive.extractfile(member).read())


def stored(folder):
    return sorted(n[:-7] for n in os.listdir(folder) if n.endswith(".tar.xz"))
