# make demo   on a fresh Debian 12: install packages, build, train a click-through-rate program with 2 servers and 2 trainers
#             (make demo PROCESSES=1: as four processes)
# make test   install packages, build with tests, run them
# The build itself is CMake: `cmake --preset dev && ninja -C build/dev`.

JOBS ?= $(shell nproc)

.PHONY: demo test setup

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh $(if $(PROCESSES),--processes) $(JOBS)

test: setup
	@cmake --preset ci >/dev/null
	@cmake --build --preset ci --parallel $(JOBS)
	@ctest --preset ci --parallel $(JOBS)
