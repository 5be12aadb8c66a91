# `make` builds the programs, `make install` copies them. `make setup` installs the packages that the demonstration needs
# besides Swift 6.2 or newer; each other goal installs the further packages that it needs.
SHELL := /bin/bash

SWIFT ?= swift
# Leaving out debug information saves a fifth of the first build's time. For a debugger: make build DEBUG_INFO=dwarf
DEBUG_INFO ?= none
DEBUG_BUILD := $(SWIFT) build -debug-info-format $(DEBUG_INFO)
# Builds an extension in the folder of the root package: $(call extension,Fleet,options). SwiftPM keeps one plan there for
# all packages, so the extension's plan is removed: otherwise the next `swift build` would build the extension again.
# The records of earlier compilations are removed as well: by them, Swift 6.3 keeps files that were compiled for an older
# layout of a type, if the type is in a module that their module does not import itself.
forget_compilations = rm -f $(shell grep -ho 'name: "[^"]*"' Extensions/*/Package.swift | cut -d'"' -f2 | tr - _ | sort -u | sed 's|.*|.build/debug/&.build/*.priors|')
extension = $(forget_compilations); $(SWIFT) build --package-path Extensions/$(1) --scratch-path .build --disable-build-manifest-caching $(2); status=$$?; rm -f .build/*.yaml; [ $$status = 0 ]
debug_extension = $(call extension,$(1),-debug-info-format $(DEBUG_INFO) $(2))
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Installs those of the packages that are missing: $(call need,purpose,packages).
need = @SUDO='$(SUDO)' Packaging/setup '$(1)' $(2)
# All that notifications need: libdbus, a bus for the tests, and the tools with which Swift compiles C and links.
NOTIFY_PACKAGES := libdbus-1-dev dbus-daemon dbus-bin pkg-config gcc g++
# The broker of a shared device: its database, password hashes and signatures.
DEVICE_PACKAGES := libsqlite3-dev libcrypt-dev libssl-dev
# All programs: the organisation's provider, the sign-in prompt's QR code, MQTT, a session's input, text and keyboard
# layouts on its screen.
PROGRAM_PACKAGES := $(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) libcurl4-openssl-dev libqrencode-dev libmosquitto-dev
PROGRAM_PACKAGES += libwayland-dev libxcb-screensaver0-dev libpango1.0-dev libxkbcommon-dev
FLEET_PACKAGES := mosquitto mosquitto-clients openssl
# The tests' own providers and clients are in Python, and a test cuts its own network.
TEST_PACKAGES := $(PROGRAM_PACKAGES) $(FLEET_PACKAGES) python3 python3-cryptography python3-jwt python3-jeepney iproute2 curl
# Packages without which tests are skipped: other languages, browsers, a model checker, sandboxes, a provider, a keyring.
ALL_TEST_PACKAGES := $(TEST_PACKAGES) python3-dbusmock python3-pydbus python3-prometheus-client python3-venv python3-setuptools python3-wheel
ALL_TEST_PACKAGES += mypy gjs libsystemd-dev spin chromium firefox-esr zbar-tools bubblewrap xdg-dbus-proxy glewlwyd gnome-keyring
ALL_TEST_PACKAGES += libsecret-tools dbus-broker systemd sway wtype xvfb xdotool

.PHONY: all help setup setup-tests setup-programs build check model simulate simulate-mutants build-tests test test-dbus-broker test-booted test-kiosk test-session test-sanitizers test-all test-long test-smoke test-hostile-smoke test-release test-pages test-api test-packages torture demo demo-fleet demo-identity demo-live demo-kiosk bench fuzz
.PHONY: setup-docs docs lint clean notifyutil notify-center notifyd shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker shared-device-agent shared-device-controller shared-device-fleet shared-device-activity shared-device-screen library static-libs install install-notify install-broker install-console install-fleet install-kiosk install-strip
.PHONY: uninstall fleet kiosk install-fleet-strip install-kiosk-strip deb rpm c-example corefoundation install-corefoundation notify-tool test-console test-msal test-django test-fleet demo-console

# What `make install` copies. The program with the most modules comes first: the compiler builds each module on one
# processor, so a second processor helps only while there are modules that do not depend on each other.
all: setup-programs shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker notify-center notifyd notifyutil library

help:
	@echo 'make            builds the programs and the library for installation: in release, with the Swift runtime linked in'
	@echo 'make setup      installs the packages for building and `make demo`, by apt-get; other goals install further packages themselves'
	@echo 'make build      builds all targets of the root package and the extensions in debug, in .build/debug'
	@echo 'make demo       shows a global sign-out across real processes, and its proof; VERBOSE=yes: with timelines and evidence'
	@echo 'make demo-fleet sends an order to three devices by a real MQTT server with TLS, and shows the operator’s view and the receipts'
	@echo 'make demo-identity  shows sign-in at a real provider (glewlwyd, which it installs), sign-out by its administrator, and an outage of it'
	@echo 'make demo-kiosk  shows a day at a screen: badge and PIN, a warning, the lock, the next person; with seconds and pictures'
	@echo 'make demo-live  starts the parts of the demo in one terminal each, to play with (tmux)'
	@echo 'make check      tests the bus, the centers and notify(3) in seconds, for every save; FILTER=SUITE/TEST: only these, of any target'
	@echo 'make test       runs all quick tests after one debug build, before a commit'
	@echo 'make test-all   runs test, test-long and the tests of dbus-broker, pages and release builds; it installs browsers, a provider, a second bus daemon'
	@echo 'make test-long  runs the slow tests: attacks, all orders of steps, random schedules with real programs, a real provider'
	@echo 'make test-dbus-broker  runs the tests that use a bus, on dbus-broker'
	@echo 'make model      checks the protocol of broker and apps in every order of its steps (model checker SPIN)'
	@echo 'make simulate   runs broker, apps, bus and disk in one process in random schedules; SCHEDULES=1000000 (1: with a trace) SEED= JOBS='
	@echo 'make simulate-mutants  checks that the simulation finds each of a set of deliberate mistakes in the broker'
	@echo 'make test-sanitizers  tests the bus, the centers and notify(3) under ThreadSanitizer and AddressSanitizer'
	@echo 'make test-release  tests the release build as it is linked and installed, with the Swift runtime linked in'
	@echo 'make test-pages  runs the code blocks of README and guides, as a reader would paste them; PAGES=: only these'
	@echo 'make test-api   lists the breaking changes of the libraries’ interfaces; BASE=origin/main'
	@echo 'make test-booted  tests in a booted container: the broker under its unit, logins by a real logind, adapters of real units'
	@echo 'make test-kiosk  tests the session of Examples/Kiosk without a screen: sway, Chromium'
	@echo 'make test-session  tests with real programs, which it installs: clipboards, keyrings, printing, LibreOffice, Firefox, Flatpak, kiosk'
	@echo 'make test-console  tests the console in a browser, with Cockpit and the broker (root, pip); make demo-console opens it; PORT=9097'
	@echo 'make test-msal  tests shared-device-microsoft-broker with Microsoft’s own library, from PyPI'
	@echo 'make test-django  tests sign-in with Django OAuth Toolkit, from PyPI, as the provider'
	@echo 'make test-fleet  tests 100,000 devices over 100 connections, then 10,000 with one each; DEVICES= CONNECTIONS= CERTIFIED='
	@echo 'make torture    random schedules of sign-ins, kills, restarts, hostile clients, full disks; SCHEDULES=2000 SEED= JOBS=2 REPEAT=1 SHRINK=0'
	@echo 'make bench      runs the benchmarks, as ratios to plain C programs; ROWS='
	@echo 'make fuzz       runs libFuzzer on the parsers of untrusted input; TARGET= (without: lists the targets) SECONDS=60'
	@echo 'make test-packages  tests the Debian packages in a booted container: installed, used, upgraded, removed, purged'
	@echo 'make install    copies what `make` built; prefix=/usr/local libdir= mandir= DESTDIR= …, see Packaging/install'
	@echo 'make install-notify, install-broker, install-console  copies one part: notify(3), the broker of a shared device, its page for Cockpit'
	@echo 'make fleet      builds agent, controller and command of a fleet, which `make` leaves out; make install-fleet copies them'
	@echo 'make kiosk      builds the programs of a graphical session, which `make` leaves out: its input, warnings and lock; make install-kiosk copies them'
	@echo 'make install-strip  the same as install, without symbols for debuggers'
	@echo 'make uninstall  removes the installed files; takes the same folders as install'
	@echo 'make deb        builds Debian packages, in .build-deb; make rpm: an RPM of each, in .build-rpm'
	@echo 'make corefoundation  builds CFNotificationCenter for C and C++, which needs the Swift toolchain to run; make install-corefoundation'
	@echo 'make c-example  builds both libraries for C in debug, and a listener in plain C; it prints the settings for your own programs'
	@echo 'make notify-tool  builds a program in plain C with each way to receive a post, against the installed library'
	@echo 'make docs       builds the documentation of the libraries as a site of static pages'
	@echo 'make lint       checks the format of the sources; links, lengths and data of the pages; the features of the broker'
	@echo 'make clean      removes all builds'

setup:
	$(call need,building and `make demo`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES))

# Also installs the packages without which tests are skipped.
setup-tests:
	$(call need,all tests,$(ALL_TEST_PACKAGES))

setup-programs:
	$(call need,building all programs,$(PROGRAM_PACKAGES))

build: setup-programs
	$(DEBUG_BUILD)
	$(call debug_extension,Organisation)
	$(call debug_extension,Fleet)
	$(call debug_extension,Kiosk)

check: setup-programs
	@SWIFT='$(SWIFT)' DEBUG_INFO='$(DEBUG_INFO)' FILTER='$(FILTER)' Tests/check

model:
	Tests/Broker/ProtocolModel/check

# In release, because a debug build runs a tenth as many schedules. To run a failing seed again and shrink it:
# SCHEDULES=1 SEED=…
SIMULATE = $$($(SWIFT) build --configuration release --show-bin-path)/simulate
simulate: export SCHEDULES := $(or $(SCHEDULES),1000000)
simulate:
	$(SWIFT) build --configuration release --product simulate
	SEED=$(SEED) JOBS=$(JOBS) $(SIMULATE)

simulate-mutants:
	$(SWIFT) build --configuration release --product simulate
	MUTANTS=yes SCHEDULES=20000 $(SIMULATE)
	SWIFT='$(SWIFT)' Tests/Broker/SharedDeviceSimulationTests/mutants

# Each test has a private bus, which takes one of the user's inotify instances (128 by default). The kernel frees them
# with a delay, so not all tests can run at once. Tests mostly wait for processes: eight at a time keep two processors busy.
test test-long test-dbus-broker test-smoke: export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH ?= 8
# Makes debug builds use cheap password hashes (113 ms otherwise).
test test-dbus-broker test-smoke: export SHARED_DEVICE_TEST_HASHES = yes
# The tests that `test` leaves to `test-long`: attacks that take minutes, all orders of steps, random schedules of real
# programs, a real provider, a wait of 25 s that C programs cannot shorten, ten thousand forks, and the tests with
# Firefox that also run with Chromium.
LONG_TESTS := SuspensionSequenceTests|BrokerTests\.TortureTests|FleetSimulationTests|FleetHostileTests|DemoIdentityTests
LONG_TESTS := $(LONG_TESTS)|Notify3Tests\.(OutageTests/aStoppedBusIsWaitedFor|ForkTests/tenThousandForks)|FirefoxTests/(cookies|closed|guarded)
HOSTILE_TESTS := (Broker|Notifyd|Logout)HostileTests
build-tests:
	$(call need,`make test`,$(TEST_PACKAGES))
	$(DEBUG_BUILD) --build-tests
	$(call debug_extension,Organisation,--build-tests)
	$(call debug_extension,Fleet,--build-tests)
	$(call debug_extension,Kiosk,--build-tests)

# The Python clients' tests also mostly wait, so they run at the same time; their output is printed at the end.
test: build-tests
	@clients=$$(mktemp); trap 'rm -f "$$clients"' EXIT; build=$$($(SWIFT) build --show-bin-path); \
	BUILD=$$build Tests/clients-check >"$$clients" 2>&1 & \
	SWIFT='$(SWIFT)' Tests/swift-test --skip '$(LONG_TESTS)|$(HOSTILE_TESTS)'; status=$$?; \
	wait $$! || status=1; cat "$$clients"; exit $$status
	@if command -v node >/dev/null; then node --test Tests/Console/values.test.mjs >/dev/null; else echo 'not tested without node: the console’s values'; fi

# Leaves out the goals that need a booted machine, the programs of a desktop, PyPI or separate builds, and the load test.
test-all: setup-tests
	$(MAKE) test
	$(MAKE) test-long
	$(MAKE) test-dbus-broker test-pages test-release

# A cache of the model's verified properties, so that its states are not all searched again. If empty, all are searched.
MODEL_CACHE ?= .build/model

# The hostile tests use release builds: without optimization a service reads more slowly than the bus writes. They run
# alone, because they measure times.
test-long test-dbus-broker: export NOTIFY_CENTER_TEST_NOTIFYD = $(shell $(SWIFT) build --configuration release --show-bin-path)/notifyd
test-long test-dbus-broker: export NOTIFY_CENTER_TEST_BROKER = $(shell $(SWIFT) build --configuration release --show-bin-path)/shared-device-broker
test-long: setup-tests build-tests
	MODEL_CACHE='$(MODEL_CACHE)' Tests/Broker/ProtocolModel/check
	for product in simulate notifyd shared-device-broker; do $(SWIFT) build --configuration release --product $$product || exit 1; done
	SCHEDULES=20000 SEED=1 $(SIMULATE)
	MUTANTS=yes SCHEDULES=20000 SEED=1 $(SIMULATE)
	SWIFT='$(SWIFT)' Tests/swift-test --filter '$(LONG_TESTS)'
	SWIFT='$(SWIFT)' Tests/swift-test --filter BrokerHostileTests
	SWIFT='$(SWIFT)' Tests/swift-test --filter LogoutHostileTests
	SWIFT='$(SWIFT)' Tests/swift-test --filter NotifydHostileTests
	$(SWIFT) build --package-path Benchmarks --product notify-center-benchmarksPackageTests
	$(SWIFT) test --package-path Benchmarks --skip-build --disable-xctest

# The tests and the hostile tests, on the default bus daemon of Fedora and Arch; without the tests that use no bus and
# without the rest of `test-long`.
WITHOUT_BUS := ^BasicsTests|BrokerTests\.(Simulation|Schedule|Monitor|Torture)Tests/
HAS_DBUS_BROKER := (command -v dbus-broker-launch && command -v systemd-socket-activate) >/dev/null && unshare --mount true 2>/dev/null
NO_DBUS_BROKER := echo 'not tested on dbus-broker: it is not installed, or this user may not start it'
# The tests of behaviour that may break only on dbus-broker: outages, match rules, names, signals, several users.
DBUS_BROKER_SMOKE := SharedDeviceTests\.(BrokerProcess|SystemBus|ListenerApp)|^(Bus|Notify3)Tests|^NotificationsTests\.(Callback|Darwin|Distributed|Flush|Foreign|HostileSize|Outage|.*BetweenProcesses)
test-smoke:
	@echo 'on dbus-broker:'; $(HAS_DBUS_BROKER) || { $(NO_DBUS_BROKER); exit 0; }; \
	NOTIFY_CENTER_TEST_BUS=dbus-broker SWIFT='$(SWIFT)' Tests/swift-test --filter '$(DBUS_BROKER_SMOKE)' --skip '$(LONG_TESTS)|$(HOSTILE_TESTS)'

# The hostile tests that take only seconds, with the notifyd that Tests/Notify3/install-check has built.
HOSTILE_SMOKE := NotifydHostileTests/floods|BrokerHostileTests/(squatting|forgedPath|strangeEnforcement|inotify)
HOSTILE_SMOKE := $(HOSTILE_SMOKE)|BrokerHostileTests/(addedByRoot|fullDisk|frozenDisk|stuckRoot)
RELEASE_CHECK_SCRATCH ?= .build-release-check
test-hostile-smoke:
	NOTIFY_CENTER_TEST_NOTIFYD=$(abspath $(RELEASE_CHECK_SCRATCH))/static/release/notifyd SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=1 \
		SWIFT='$(SWIFT)' Tests/swift-test --filter '$(HOSTILE_SMOKE)'

test-dbus-broker: build-tests
	@$(HAS_DBUS_BROKER) || { $(NO_DBUS_BROKER); exit 0; }; \
	set -ex; export NOTIFY_CENTER_TEST_BUS=dbus-broker; \
	for product in notifyd shared-device-broker; do $(SWIFT) build --configuration release --product $$product; done; \
	SWIFT='$(SWIFT)' Tests/swift-test --skip '$(LONG_TESTS)|$(HOSTILE_TESTS)|$(WITHOUT_BUS)'; \
	SWIFT='$(SWIFT)' Tests/swift-test --filter BrokerHostileTests; \
	SWIFT='$(SWIFT)' Tests/swift-test --filter NotifydHostileTests

# Runs or compiles the code blocks of the pages. The first block of the README builds a fresh clone.
test-pages: build
	$(call need,`make test-pages`,$(TEST_PACKAGES))
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/pages-check $(PAGES)

# Needs root, systemd and namespaces, so it is not part of `test`.
test-booted: build
	for check in Tests/Broker/booted-check Tests/Broker/booted-login-check Tests/Adapters/booted-check; do \
		BUILD=$$($(SWIFT) build --show-bin-path) $$check || exit 1; \
	done

KIOSK := sway xvfb xdotool chromium
test-kiosk: build
	$(call need,`make test-kiosk`,$(KIOSK))
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/kiosk-check

# The programs of a desktop session: some hundred packages with a print service, so they are not part of `setup`. `test`
# skips the tests whose programs are missing. As root, this goal runs all of these tests.
SESSION := xvfb xclip xsel sway wl-clipboard gnome-keyring libsecret-tools libglib2.0-bin cups cups-client libreoffice-writer-nogui firefox-esr
SESSION += bubblewrap xdg-dbus-proxy flatpak
test-session: build-tests
	$(call need,`make test-session`,$(SESSION) $(KIOSK))
	SWIFT='$(SWIFT)' Tests/swift-test --filter SessionServicesTests --filter PresetTests --filter SandboxedAppTests
	for check in Tests/Adapters/flatpak-check Tests/kiosk-check; do BUILD=$$($(SWIFT) build --show-bin-path) $$check || exit 1; done

# playwright and axe come from PyPI, so this is not part of `test`. The check names missing programs.
CONSOLE_VENV ?= .build/console-venv
COCKPIT := cockpit-ws cockpit-bridge cockpit-system
test-console:
	$(call need,`make test-console`,$(PROGRAM_PACKAGES) $(FLEET_PACKAGES) $(COCKPIT) chromium python3-venv polkitd)
	for product in shared-device-broker shared-device; do $(DEBUG_BUILD) --product $$product || exit 1; done
	$(call debug_extension,Fleet)
	[ -x '$(CONSOLE_VENV)/bin/python3' ] || python3 -m venv '$(CONSOLE_VENV)'
	'$(CONSOLE_VENV)/bin/pip' install --quiet playwright axe-playwright-python
	PYTHON='$(CONSOLE_VENV)/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Console/console-check

# Microsoft's library is closed and comes from PyPI, so this is not part of `test`. The check names missing programs.
MSAL_VENV ?= .build/msal-venv
test-msal:
	$(call need,`make test-msal`,$(PROGRAM_PACKAGES) gnome-keyring libsecret-tools libsecret-1-0 libwebkit2gtk-4.1-0 python3-venv python3-cryptography)
	$(call debug_extension,Organisation)
	[ -x '$(MSAL_VENV)/bin/python3' ] || python3 -m venv '$(MSAL_VENV)'
	'$(MSAL_VENV)/bin/pip' install --quiet msal==1.39.0 pymsalruntime==0.20.7
	PYTHON='$(MSAL_VENV)/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Extensions/Organisation/Tests/msal-check

# Django OAuth Toolkit comes from PyPI, so this is not part of `test`. The check names missing programs. oauthlib stays at
# version 3, because device codes fail with oauthlib 4.
DJANGO_VENV ?= .build/django-venv
test-django:
	$(call need,`make test-django`,$(PROGRAM_PACKAGES) python3-venv chromium python3-cryptography)
	$(call debug_extension,Organisation)
	[ -x '$(DJANGO_VENV)/bin/python3' ] || python3 -m venv '$(DJANGO_VENV)'
	'$(DJANGO_VENV)/bin/pip' install --quiet django==5.2.19 django-oauth-toolkit==3.4.1 oauthlib==3.3.1
	PYTHON='$(abspath $(DJANGO_VENV))/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Extensions/Organisation/Tests/django-check

# Runs entirely in separate namespaces, and leaves nothing behind when it ends.
demo-console:
	$(call need,`make demo-console`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) $(COCKPIT))
	$(DEBUG_BUILD) --product shared-device-broker
	$(DEBUG_BUILD) --product shared-device
	$(SUDO) env PORT='$(or $(PORT),9097)' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Console/console-check --demo

# In release: first 100,000 simulated devices behind 100 connections, with a real mosquitto that loses its data and a
# controller that is killed; then 10,000 devices with a connection and a certificate each. Both print their cost.
test-fleet:
	$(call need,`make test-fleet`,$(PROGRAM_PACKAGES) $(FLEET_PACKAGES))
	$(call extension,Fleet,--configuration release)
	programs=$$($(SWIFT) build --configuration release --show-bin-path) && \
	$$programs/fleet-load --devices $(or $(DEVICES),100000) --connections $(or $(CONNECTIONS),100) && \
	$$programs/fleet-load --certified $(or $(CERTIFIED),10000)

# Needs two separate builds, so it is not part of `test`.
test-sanitizers: setup
	SWIFT='$(SWIFT)' Tests/sanitizers

test-release:
	SWIFT='$(SWIFT)' Tests/release-check
	SWIFT='$(SWIFT)' Tests/Notify3/install-check
	SWIFT='$(SWIFT)' Tests/Broker/install-broker-check

# A seed gives the same schedule each time: SEED=123 SCHEDULES=1. The programs' timing may differ, so use REPEAT=50.
# Hostile clients and a second user need root, and a full disk needs the right to mount. Without these rights the run
# leaves them out and says so.
SCHEDULES ?= 2000
SEED ?= $(shell date +%s)
JOBS ?= 2
REPEAT ?= 1
SHRINK ?= 0
torture: build-tests
	TORTURE_SCHEDULES=$(SCHEDULES) TORTURE_SEED=$(SEED) TORTURE_JOBS=$(JOBS) TORTURE_REPEAT=$(REPEAT) \
		TORTURE_SHRINK=$(SHRINK) \
		SWIFT='$(SWIFT)' Tests/swift-test --filter 'BrokerTests.TortureTests/torture'

demo: setup
	@$(DEBUG_BUILD) --product demo
	@programs=$$($(SWIFT) build --show-bin-path) && \
	$$programs/demo $(if $(VERBOSE),--verbose) && \
	printf '\nThe same apps in a plan, as you can write one for your apps:\n' && \
	{ /usr/bin/python3 -c 'import jeepney' 2>/dev/null || echo 'The app in Python is left out: apt-get install python3-jeepney'; } && \
	$$programs/shared-device check Examples/check-plan.json --html .build/demo-timeline.html $(if $(VERBOSE),--verbose)

# Does not use mosquitto's system service: the demonstration starts a private server on a free port.
demo-fleet:
	$(call need,`make demo-fleet`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) libmosquitto-dev $(FLEET_PACKAGES))
	@$(call debug_extension,Fleet)
	@$$($(SWIFT) build --show-bin-path)/demo-fleet

# The demonstration starts a private process of the provider; the package's service is neither configured nor needed.
demo-identity:
	$(call need,`make demo-identity`,$(PROGRAM_PACKAGES) glewlwyd python3-cryptography python3-jwt chromium)
	@$(call debug_extension,Organisation)
	@$$($(SWIFT) build --show-bin-path)/demo-identity $(if $(VERBOSE),--verbose)

# The pictures need grim, and fonts for Chinese.
demo-kiosk:
	$(call need,`make demo-kiosk`,$(PROGRAM_PACKAGES) sway wtype grim chromium fonts-noto-cjk)
	@for product in shared-device-broker shared-device; do $(DEBUG_BUILD) --product $$product || exit 1; done
	@$(call debug_extension,Kiosk)
	@BUILD=$$($(SWIFT) build --show-bin-path) Tests/kiosk-demo

demo-live: setup
	$(call need,`make demo-live`,$(PROGRAM_PACKAGES) tmux)
	$(DEBUG_BUILD)
	$(call debug_extension,Organisation)
	Examples/demo-live $$($(SWIFT) build --show-bin-path)

# ROWS='round-trip memory' runs only these two; Benchmarks/run --list lists all rows.
ROWS ?=
bench:
	$(call need,`make bench`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) libsystemd-dev libglib2.0-dev valgrind)
	Benchmarks/run $(ROWS)

# Uses a separate build with instrumented modules. A crash prints the command that replays it.
fuzz:
	$(call need,`make fuzz`,$(PROGRAM_PACKAGES) python3-venv)
	@SWIFT='$(SWIFT)' FUZZ_INPUT='$(FUZZ_INPUT)' Fuzzing/run '$(TARGET)' '$(or $(SECONDS),60)'

setup-docs:
	$(call need,`make docs`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) cmark-gfm mandoc)

docs: setup-docs
	@SWIFT=$(SWIFT) Documentation/build

lint:
	$(SWIFT) format lint --strict --recursive Package.swift Sources Tests Examples Extensions Benchmarks/Package.swift Benchmarks/Sources Fuzzing/Package.swift Fuzzing/Sources
	Tests/pages-check --reading
	Tests/Broker/features-check

# Compares the public interface of the libraries with another commit.
API := NotifyCenter NotifyCenterTestKit NotifyCenterFoundation AppleNotifications notify SharedDevice SharedDeviceTestKit MSALCompatibility
test-api: setup-programs
	$(SWIFT) package diagnose-api-breaking-changes $(or $(BASE),origin/main) $(addprefix --products ,$(API))

# Installed programs have the Swift and C++ runtimes linked in, so they run without Swift. The toolchain's lld links them,
# because gold cannot make all constants read-only (Packaging/constants.ld). PIE, the default, lets the kernel choose the
# addresses at each start. -znow and -zrelro make all relocated data read-only before main.
STATIC_SCRATCH ?= .build-static
STATIC_LIBS := $(abspath $(STATIC_SCRATCH))/static-libs
# The library needs -static-stdlib in addition, because `--static-swift-stdlib` applies to programs only. Programs and
# library share the compiler flags, so that each module is compiled once; only the links differ.
RELEASE = $(SWIFT) build --configuration release --static-swift-stdlib --disable-local-rpath -Xswiftc -static-stdlib \
	--scratch-path $(STATIC_SCRATCH) --disable-build-manifest-caching -Xlinker -L$(STATIC_LIBS) $(LINK)
LINK := -Xswiftc -use-ld=lld -Xlinker -T -Xlinker $(abspath Packaging/constants.ld) -Xlinker -znow -Xlinker -zrelro -Xlinker --build-id=sha1
# glibc 2.36 and later read packed relocations, which take a tenth of the space.
LINK += $(shell getconf GNU_LIBC_VERSION | sed 's/glibc/2.36/; s/ /\n/' | sort -CV && echo -Xlinker -zpack-relative-relocs)
# Scripts start notifyutil often, so libdbus is linked into it statically: the shared libdbus needs seven further
# libraries, which the dynamic linker would load at each start. “no” keeps libdbus shared, for a distribution in which an
# update of libdbus has to reach every program.
STATIC_LIBDBUS ?= yes
QUICK_START := $(abspath $(STATIC_SCRATCH))/quick-start
notifyutil: LINK_FLAGS = $$(STATIC_LIBDBUS='$(STATIC_LIBDBUS)' Packaging/quick-start '$(QUICK_START)')
# swift-argument-parser writes the completions of its programs.
notify-center shared-device shared-device-fleet: COMPLETIONS := yes
shared-device-identity shared-device-sign-in shared-device-microsoft-broker: PACKAGE := --package-path Extensions/Organisation
shared-device-agent shared-device-controller shared-device-fleet: PACKAGE := --package-path Extensions/Fleet
shared-device-activity shared-device-screen: PACKAGE := --package-path Extensions/Kiosk
notifyutil notify-center notifyd shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker shared-device-agent shared-device-controller shared-device-fleet shared-device-activity shared-device-screen: static-libs
	flags="$(LINK_FLAGS)" && \
	PKG_CONFIG_PATH="$(if $(LINK_FLAGS),$(QUICK_START):)$$PKG_CONFIG_PATH" \
	$(RELEASE) $(PACKAGE) --product $@ $$flags
	$(if $(COMPLETIONS),Packaging/completions $(STATIC_SCRATCH)/release/$@ $(STATIC_SCRATCH)/completions)
	@echo built $(STATIC_SCRATCH)/release/$@

# For programs of any language, so the runtimes are linked in. It exports only the functions of the headers
# (libdarwin-notify.map), so its runtimes do not clash with those of a program. It cannot be unloaded (nodelete),
# because its threads run its code.
library: static-libs
	$(RELEASE) --product darwin-notify -Xlinker --version-script=$(abspath Packaging/libdarwin-notify.map) \
		-Xlinker -soname=libdarwin-notify.so.1 -Xlinker -znodelete

# The library of CFNotificationCenter. It uses the toolchain's shared runtimes, because a program and this library have to
# share one CoreFoundation.
COREFOUNDATION_SCRATCH := .build-corefoundation
corefoundation:
	$(SWIFT) build --configuration release --scratch-path $(COREFOUNDATION_SCRATCH) --product CFNotificationCenter \
		-Xswiftc -use-ld=lld -Xlinker --version-script=$(abspath Packaging/libCFNotificationCenter.map) \
		-Xlinker -soname=libCFNotificationCenter.so.1 -Xlinker -znodelete

static-libs:
	@mkdir -p $(STATIC_LIBS)
	@ln -sf "$$(cc -print-file-name=libstdc++.a)" $(STATIC_LIBS)/libstdc++.a
	@ln -sf "$$(cc -print-file-name=libgcc_eh.a)" $(STATIC_LIBS)/libgcc_s.a

# Packaging/install takes the folders from the command line (prefix=, libdir=, DESTDIR= …) and has their defaults.
install: install-notify install-broker install-console

install-notify:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install notify

install-broker:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install shared-device

install-console:
	Packaging/install console

# Not part of `all` and `install`, because only this library needs the Swift toolchain to run.
install-corefoundation:
	STATIC_SCRATCH='$(COREFOUNDATION_SCRATCH)' Packaging/install corefoundation

# Not part of `all` and `install`: most machines are neither in a fleet nor its controller.
fleet: shared-device-agent shared-device-controller shared-device-fleet

install-fleet:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install fleet

# Not part of `all` and `install`: a device without a screen needs neither Wayland nor X.
kiosk: shared-device-activity shared-device-screen

install-kiosk:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install kiosk

install-strip install-fleet-strip install-kiosk-strip: export INSTALL_PROGRAM := install -s
install-strip: install
install-fleet-strip: install-fleet
install-kiosk-strip: install-kiosk

uninstall:
	Packaging/install notify --remove
	Packaging/install shared-device --remove
	Packaging/install console --remove
	Packaging/install corefoundation --remove
	Packaging/install fleet --remove
	Packaging/install kiosk --remove

deb:
	$(call need,`make deb`,$(PROGRAM_PACKAGES) debhelper)
	Packaging/build-packages deb

rpm:
	$(call need,`make rpm`,$(PROGRAM_PACKAGES) rpm)
	Packaging/build-packages rpm

# Needs root and namespaces, as test-booted does.
test-packages:
	$(call need,`make test-packages`,$(PROGRAM_PACKAGES) debhelper lintian appstream rpm rpmlint $(COCKPIT))
	$(MAKE) deb
	$(DEBUG_BUILD) --product listener-app
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/packages-check
	Tests/provisioning-check

# Installs both libraries for C from the debug build into .build/c, and prints the settings for programs.
C_PREFIX := $(abspath .build/c)
c-example:
	$(call need,`make c-example`,$(NOTIFY_PACKAGES))
	for product in CFNotificationCenter darwin-notify; do $(DEBUG_BUILD) --product $$product || exit 1; done
	for part in corefoundation notify-library; do \
		prefix='$(C_PREFIX)' STATIC_SCRATCH=.build CONFIGURATION=debug DESTDIR= Packaging/install $$part || exit 1; \
	done
	PKG_CONFIG_PATH='$(C_PREFIX)/lib/pkgconfig' Examples/BroadcastReceiver/build .build/broadcast-receiver
	@echo 'built .build/broadcast-receiver, which finds its library by itself. For programs of your own:'
	@echo '  export PKG_CONFIG_PATH=$(C_PREFIX)/lib/pkgconfig LD_LIBRARY_PATH=$(C_PREFIX)/lib'
	@echo '  cc hello.c $$(pkg-config --cflags --libs darwin-notify)'
	@echo '  $$(pkg-config --variable=clang cf-notification-center) hello.c $$(pkg-config --cflags --libs cf-notification-center)'

notify-tool:
	PKG_CONFIG_PATH='$(or $(libdir),$(or $(prefix),$(PREFIX),/usr/local)/lib)/pkgconfig' SWIFT='$(SWIFT)' Examples/NotifyTool/build .build/notify-tool
	@echo built .build/notify-tool

clean:
	rm -rf .build .build-thread .build-address .build-static .build-docs .build-release-check .build-deb .build-rpm $(COREFOUNDATION_SCRATCH) Benchmarks/.build-bench Fuzzing/.build-fuzz Examples/*/.build
