# Every target prepares the machine first (tools/setup.sh installs what a fresh Debian 12 lacks).
#   demo        build, run the main job on built-in input
#   test        build what is shipped, run every test
#   check       format, warnings under two compilers, arrows, tables, tests with assertions: a minute or two
#   check-all   check, then sanitizers, fuzzing for a moment, mutants
#   format      lays the .c files out
#   bench install docs mutants clean
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: demo test check check-all format bench install docs mutants release setup clean

demo: release
	@tools/demo.sh

test: release
	ctest --test-dir build/release --output-on-failure

check: setup
	@tools/check.sh

check-all: check
	@tools/check_all.sh

# Twice: clang-format 14 does not always reach its own layout at once.
format: setup
	git ls-files -co --exclude-standard -- 'src/*.c' 'tests/*.c' 'examples/*.c' 'bench/*.c' | xargs clang-format -i
	git ls-files -co --exclude-standard -- 'src/*.c' 'tests/*.c' 'examples/*.c' 'bench/*.c' | xargs clang-format -i

bench: release
	@tools/bench.sh

docs: release
	@tools/docs.sh

mutants: setup
	@tools/mutants.sh

install: release
	DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

release: setup
	@tools/build.sh release

setup:
	@tools/setup.sh

clean:
	rm -rf build out
