#!/usr/bin/env python3
"""Writes a bill of materials (SPDX 2.3, JSON): every Debian package of which a header was compiled into this build, a
static library linked, or that a program of the build loads.

    bill_of_materials.py --build build/release --output millrace.spdx.json

Licences are those that the copyright files of the packages name; a file that is not machine-readable gives
NOASSERTION. The date is SOURCE_DATE_EPOCH, else that of the commit, so the same build gives the same file.
"""
import argparse
import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CUDA = re.compile(r"^/usr/local/cuda(?:-([0-9.]+))?/")  # installed without Debian packages
RUNTIME = re.compile(r"^(linux-libc-dev|libc6(-dev)?|libgcc-.*|gcc-.*|libstdc\+\+.*|cpp-.*)$")  # of any C++ program


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def headers(build):
    """Headers of the system that sources of the product include."""
    found, of_tests = set(), False
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            of_tests = line.startswith(("tests/", "bench/", "CMakeFiles/millrace_header_check"))
        elif not of_tests and line.strip().startswith("/usr/"):
            found.add(os.path.realpath(line.strip()))
    return found


def archives(build):
    """Static libraries of the system that the product links."""
    found, of_tests = set(), False
    with open(os.path.join(build, "build.ninja"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("build "):
                of_tests = line.startswith(("build tests/", "build bench/"))
            elif not of_tests:
                found |= {os.path.realpath(path) for path in re.findall(r"/usr/\S+\.a\b", line)}
    return {path for path in found if os.path.exists(path)}


def loaded(build):
    """Shared libraries that the tools, libraries and modules need directly or through others."""
    programs = [*glob.glob(build + "/libmillrace_*.so"), *glob.glob(build + "/lib/millrace/*.so"), *glob.glob(build + "/tools/*")]
    found = set()
    for program in programs:
        if os.path.isfile(program) and os.access(program, os.X_OK):
            listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            found |= {os.path.realpath(p) for p in re.findall(r"=> (/\S+)", listing)}
    return {p for p in found if not p.startswith(os.path.realpath(build))}


def packages_of(paths):
    """Debian packages of files. Files that no package owns are an error: the list would not be complete."""
    found, known, paths = set(), set(), sorted(paths)
    for at in range(0, len(paths), 500):
        # a file of /usr/lib may be owned under its old name in /lib
        names = paths[at:at + 500] + [p[len("/usr"):] for p in paths[at:at + 500] if p.startswith("/usr/lib/")]
        listing = subprocess.run(["dpkg", "-S", *names], capture_output=True, text=True, check=False)
        for line in listing.stdout.splitlines():
            owners, _, path = line.rpartition(": ")
            if path.startswith("/") and not owners.startswith("diversion"):
                known.add(path if path in paths else "/usr" + path)
                found.add(owners.split(", ")[0].split(":")[0])
    foreign = [p for p in paths if p not in known]
    if foreign:
        raise SystemExit(f"no Debian package owns {', '.join(foreign[:5])}" + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""))
    return found


def licences(package):
    path = f"/usr/share/doc/{package}/copyright"
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if "copyright-format" not in text:
        return []
    return sorted({m.strip() for m in re.findall(r"^License:[ \t]*(\S.*)$", text, re.M)})


def identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def entry(package, version, source, uses):
    named = licences(package)
    return {
        "SPDXID": identifier("deb-" + package), "name": package, "versionInfo": version, "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "comment": f"{', '.join(uses)}; licences named in its copyright file: {', '.join(named) or 'not machine-readable'}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{package}@{version}?distro=bookworm"}],
        "sourceInfo": f"Debian source package {source}",
    }


def cuda_entry(version, uses):
    return {
        "SPDXID": "SPDXRef-cuda-toolkit", "name": "cuda-toolkit", "versionInfo": version or "NOASSERTION", "supplier": "Organization: NVIDIA",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION", "comment": f"{', '.join(uses)}; only the module for GPUs",
    }


def document(build):
    uses, cuda, cuda_version = {}, [], ""
    for how, paths in (("headers", headers(build)), ("linked statically", archives(build)), ("loaded", loaded(build))):
        of_cuda = {path for path in paths if CUDA.match(path)}
        if of_cuda:
            cuda.append(how)
            cuda_version = CUDA.match(min(of_cuda)).group(1)
        for package in packages_of(paths - of_cuda):
            uses.setdefault(package, []).append(how)
    uses = {package: how for package, how in uses.items() if not RUNTIME.match(package)}
    if not uses:
        raise SystemExit(f"{build}: no packages found; is it built?")
    packages = []
    for package in sorted(uses):
        version, source = output_of("dpkg-query", "-W", "-f=${Version}\t${source:Package}\n", package).splitlines()[0].split("\t")
        packages.append(entry(package, version, source, uses[package]))
    if cuda:
        packages.append(cuda_entry(cuda_version, cuda))
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        version = re.search(r"project\(millrace VERSION (\S+)", file.read()).group(1)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    own = {"SPDXID": "SPDXRef-millrace", "name": "millrace", "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
           "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION"}
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-millrace"}]
    for package in packages:
        how = uses.get(package["name"], cuda)
        kind = "STATIC_LINK" if "linked statically" in how else "DYNAMIC_LINK" if "loaded" in how else "DEPENDS_ON"
        relations.append({"spdxElementId": "SPDXRef-millrace", "relationshipType": kind, "relatedSpdxElement": package["SPDXID"]})
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:32]
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"millrace-{version}",
            "documentNamespace": f"urn:millrace:{version}:{digest}",
            "creationInfo": {"created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Tool: millrace-bill-of-materials"]},
            "packages": [own] + packages, "relationships": relations}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    text = json.dumps(document(os.path.abspath(args.build)), indent=1) + "\n"
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
