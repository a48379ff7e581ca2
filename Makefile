# make demo   on a fresh Debian 12: install packages, build, cut a real training program for 2 servers and 2 trainers
# make test   install packages, build with tests, run them
# The build itself is CMake: `cmake --preset dev && ninja -C build/dev`.

JOBS ?= $(shell nproc)

.PHONY: demo test setup

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh $(JOBS)

test: setup
	@cmake --preset ci >/dev/null
	@cmake --build --preset ci --parallel $(JOBS)
	@ctest --preset ci --parallel $(JOBS)
