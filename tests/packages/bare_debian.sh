#!/usr/bin/env bash
# The Debian packages on a bare Debian 12: makes them from a build, installs them in a root folder made by debootstrap,
# and runs the tools, the Python package and the examples there. Needs root, debootstrap, and some 1.5 GB.
#
#   bare_debian.sh BUILD WORK [WHEEL]
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
wheel=${3:-}
root=$work/root passed=0

said() { echo "ok: $1" && passed=$((passed + 1)); }
inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/ LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
# True if the given words are in the output.
shows() {
  local words=$1
  shift
  inside "$@" >"$work/said" 2>&1 || { cat "$work/said" && return 1; }
  grep -q -- "$words" "$work/said" || { cat "$work/said" && return 1; }
}

rm -rf "$work/debs"
# shellcheck disable=SC2086  # no word without a wheel
"$source/scripts/make_packages.sh" "$build" "$work/debs" $wheel
if [ ! -e "$root/etc/debian_version" ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
  debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" && exit 1; }
  cp /etc/resolv.conf "$root/etc/"
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
rm -rf "$root/srv" && mkdir -p "$root/srv"
cp "$work"/debs/*.deb "$root/srv/"
cp -r "$source/examples" "$source/tests/data/models" "$source/tests/data/fit_a_line" "$root/srv/"

inside sh -c 'apt-get purge -y -q "*millrace*" || true' >"$work/apt.log" 2>&1
# as in an image made by scripts/Dockerfile
rm -rf "$root/debs" && mkdir "$root/debs"
cp "$work"/debs/libmillrace0*.deb "$work"/debs/millrace_*.deb "$root/debs/"
inside sh -c "$(sed -n 's/^RUN //p' "$source/scripts/Dockerfile" | tail -n 1)" >>"$work/apt.log" 2>&1 || { tail "$work/apt.log" && exit 1; }
shows "run-program" millrace --help
shows "^run-program " run-program --version
inside run-program --model-dir /srv/models/fit_a_line_2018 --feed x=2x13xf32=random:7 --output /srv/out.npz
shows "runs yes" migrate /srv/models/fit_a_line_2018
inside test -e /usr/share/man/man1/transpile-program.1 -o -e /usr/share/man/man1/transpile-program.1.gz
shows "1 of 1 servers did not answer" sh -c 'status --pservers 127.0.0.1:1 --timeout-ms 200; true'
shows "grpc" sh -c 'ls /usr/lib/millrace'
said "tools, without headers or compilers"

inside apt-get update -q >>"$work/apt.log" 2>&1
inside sh -c 'apt-get install -y -q --no-install-recommends g++ cmake make pkg-config /srv/libmillrace-dev_*.deb' >>"$work/apt.log" 2>&1 || { tail "$work/apt.log" && exit 1; }
for name in infer infer_c train api; do
  inside sh -c "cmake -S /srv/examples/$name -B /srv/$name && cmake --build /srv/$name" >"$work/$name.log" 2>&1 || { tail "$work/$name.log" && exit 1; }
done
inside /srv/infer/infer /srv/models/fit_a_line_2018 13
inside /srv/infer_c/infer_c /srv/models/fit_a_line_2018 13
inside /srv/train/train 51
inside /srv/api/steps /srv/fit_a_line/main.pb /srv/fit_a_line/startup.pb
inside mkdir -p /srv/jobs_out
inside /srv/api/jobs /srv/jobs_out/jobs
said "examples with the headers of libmillrace-dev"

if [ -n "$wheel" ]; then
  inside sh -c 'apt-get install -y -q --no-install-recommends /srv/python3-millrace_*.deb' >>"$work/apt.log" 2>&1 || { tail "$work/apt.log" && exit 1; }
  inside python3 -B -c '
import millrace, numpy
session = millrace.Session.open_model("/srv/models/fit_a_line_2018")
results = session.run({session.inputs[0]: numpy.ones((2, 13), numpy.float32)})
print({name: value.shape for name, value in results.items()})'
  said "python3-millrace"
fi
inside apt-get purge -y -q libmillrace0.1 >>"$work/apt.log" 2>&1
inside sh -c '! ls /usr/lib/millrace /usr/include/millrace 2>/dev/null | grep .'
said "removed without remains"
echo "$passed passed, 0 failed"
