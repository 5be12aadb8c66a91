# `make` builds what is installed, `make install` copies it. `make setup` installs what the demonstration needs besides Swift 6.2 or newer; each
# other goal installs what it needs in addition.
SHELL := /bin/bash

SWIFT ?= swift
# Without debug information the first build takes four fifths of the time. For a debugger: make build DEBUG_INFO=dwarf
DEBUG_INFO ?= none
DEBUG_BUILD := $(SWIFT) build -debug-info-format $(DEBUG_INFO)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Installs packages that are missing: $(call need,purpose,packages).
need = @SUDO='$(SUDO)' Packaging/setup '$(1)' $(2)
# libdbus, a bus for the tests, and what Swift compiles C and links with: all that notifications need.
NOTIFY_PACKAGES := libdbus-1-dev dbus-daemon dbus-bin pkg-config gcc g++
# The broker of a shared device: its database, password hashes and signatures.
DEVICE_PACKAGES := libsqlite3-dev libcrypt-dev libssl-dev
# All programs: the organisation's provider, the sign-in prompt's QR code, MQTT.
PROGRAM_PACKAGES := $(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) libcurl4-openssl-dev libqrencode-dev libmosquitto-dev
FLEET_PACKAGES := mosquitto mosquitto-clients openssl
# The tests' own providers and clients are in Python, and a test cuts its own network.
TEST_PACKAGES := $(PROGRAM_PACKAGES) $(FLEET_PACKAGES) python3 python3-cryptography python3-jwt python3-jeepney iproute2 curl
# Whatever tests skip if it is not there: other languages, browsers, a model checker, sandboxes, an identity provider, a keyring.
ALL_TEST_PACKAGES := $(TEST_PACKAGES) python3-dbusmock python3-pydbus python3-prometheus-client python3-venv python3-setuptools python3-wheel
ALL_TEST_PACKAGES += mypy gjs libsystemd-dev spin chromium firefox-esr zbar-tools bubblewrap xdg-dbus-proxy glewlwyd gnome-keyring
ALL_TEST_PACKAGES += libsecret-tools dbus-broker systemd

.PHONY: all help setup setup-tests setup-programs build check model simulate simulate-mutants build-tests test test-dbus-broker test-booted test-kiosk test-session test-sanitizers test-all test-long test-smoke test-hostile-smoke test-release test-pages test-api test-packages torture demo demo-fleet demo-identity demo-live bench fuzz
.PHONY: setup-docs docs lint clean notifyutil notify-center notifyd shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker shared-device-agent shared-device-controller library static-libs install install-notify install-broker install-console install-fleet install-strip
.PHONY: uninstall fleet install-fleet-strip deb rpm c-example corefoundation install-corefoundation notify-tool test-console test-msal test-django test-fleet demo-console

# What `make install` copies. The program with the most modules comes first: the compiler has one module after the other on one processor,
# so the second one works only while there are modules that do not wait for each other.
all: setup-programs shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker notify-center notifyd notifyutil library

help:
	@echo 'make            the programs and the library as they are installed: in release, with the Swift runtime linked in'
	@echo 'make setup      installs the packages for building and `make demo`, by apt-get; other goals install what they need in addition'
	@echo 'make build      all targets in debug, in .build/debug'
	@echo 'make demo       global sign-out across real processes, and its proof; VERBOSE=yes: with timelines and evidence'
	@echo 'make demo-fleet an order to three devices, by a real MQTT server with TLS: what the operator sees, and the receipts'
	@echo 'make demo-identity  sign-in on the page of a real provider (glewlwyd), a sign-out by its administrator, and without it; installs it, unconfigured'
	@echo 'make demo-live  the same parts, one terminal each, to play with (tmux)'
	@echo 'make check      for every save: the bus, the centers and notify(3), in seconds; FILTER=SUITE/TEST: these tests alone, of any target'
	@echo 'make test       before a commit: one debug build, and all tests that take no minutes'
	@echo 'make test-all   every test that needs no booted machine; it installs browsers, a provider, a second bus daemon'
	@echo 'make test-long  those that take long: attacks, all orders of steps, random schedules with real programs, a real provider'
	@echo 'make test-dbus-broker  those that use a bus, on dbus-broker'
	@echo 'make model      the protocol of broker and apps, in every order of its steps (model checker SPIN)'
	@echo 'make simulate   broker, apps, bus and disk in one process, in random schedules; SCHEDULES=1000000 SEED= JOBS= (SCHEDULES=1: what happens)'
	@echo 'make simulate-mutants  deliberate mistakes in the broker, each of which the simulation has to find'
	@echo 'make test-sanitizers  the bus, the centers and notify(3) under ThreadSanitizer and AddressSanitizer, without a report'
	@echo 'make test-release  what is linked and installed, in release with the Swift runtime linked in: do programs hear posts?'
	@echo 'make test-pages  the blocks of README and guides, each as a reader would paste it; PAGES= these alone'
	@echo 'make test-api   what a change takes away from users of the libraries; BASE=origin/main'
	@echo 'make test-booted  in a booted container: the broker under its unit, logins by a real logind, adapters of real units'
	@echo 'make test-kiosk  the session of Examples/Kiosk without a screen: cage, Chromium'
	@echo 'make test-session  clipboards, keyrings, print queue, LibreOffice, Firefox, Flatpak, and test-kiosk: it installs the real programs'
	@echo 'make test-console  the console in a browser, against Cockpit and the broker (root, pip); make demo-console opens it; PORT=9097'
	@echo 'make test-msal  Microsoft’s own library, from PyPI, asks shared-device-microsoft-broker for accounts and tokens'
	@echo 'make test-django  Django OAuth Toolkit, from PyPI, as the provider that people sign in with'
	@echo 'make test-fleet  100,000 devices over 100 connections, then 10,000 with one each, with a real MQTT server; DEVICES= CONNECTIONS= CERTIFIED='
	@echo 'make torture    random schedules of sign-ins, kills, restarts, hostile clients, full disks; SCHEDULES=2000 SEED= JOBS=2 REPEAT=1 SHRINK=0'
	@echo 'make bench      the measurements, as ratios to plain C programs; ROWS='
	@echo 'make fuzz       libFuzzer on the parsers of what strangers send; TARGET= (without: which there are) SECONDS=60'
	@echo 'make test-packages  the Debian packages in a booted container: installed, used, upgraded, removed, purged'
	@echo 'make install    copies what `make` built; prefix=/usr/local libdir= mandir= DESTDIR= …, see Packaging/install'
	@echo 'make install-notify, install-broker, install-console  one of its parts: notify(3), the broker of a shared device, its page for Cockpit'
	@echo 'make fleet      agent and controller of a fleet, which `make` leaves out; make install-fleet copies them'
	@echo 'make install-strip  the same as install, without symbols for debuggers'
	@echo 'make uninstall  removes it again; with the same folders'
	@echo 'make deb        Debian packages, in .build-deb; make rpm: an RPM of each, in .build-rpm'
	@echo 'make corefoundation  CFNotificationCenter for C and C++; it needs the Swift toolchain also where it runs; make install-corefoundation copies it'
	@echo 'make c-example  both libraries for C from the debug build, and a listener in plain C; it says what to set for programs of your own'
	@echo 'make notify-tool  each way to hear of a post, in plain C against what make install installed'
	@echo 'make docs       the documentation of the libraries, as a site of static pages'
	@echo 'make lint       the formatter in its strict mode; links, lengths and data of the pages'
	@echo 'make clean      removes what was built'

setup:
	$(call need,building and `make demo`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES))

# Also what tests skip if it is not there.
setup-tests:
	$(call need,all tests,$(ALL_TEST_PACKAGES))

setup-programs:
	$(call need,building all programs,$(PROGRAM_PACKAGES))

build: setup-programs
	$(DEBUG_BUILD)

# A build of its own, so that it does not undo the other one. The broker is left out: its dependencies take longer than a save may.
check:
	@SWIFT='$(SWIFT)' DEBUG_INFO='$(DEBUG_INFO)' FILTER='$(FILTER)' Tests/check

model:
	Tests/Broker/ProtocolModel/check

# In release, because a debug build plays a tenth as many. A seed that fails plays again with SCHEDULES=1 SEED=…, and shrinks.
SIMULATE = $$($(SWIFT) build --configuration release --show-bin-path)/simulate
simulate: export SCHEDULES := $(or $(SCHEDULES),1000000)
simulate:
	$(SWIFT) build --configuration release --product simulate
	SEED=$(SEED) JOBS=$(JOBS) $(SIMULATE)

simulate-mutants:
	$(SWIFT) build --configuration release --product simulate
	MUTANTS=yes SCHEDULES=20000 $(SIMULATE)
	SWIFT='$(SWIFT)' Tests/Broker/SharedDeviceSimulationTests/mutants

# Each test has a bus of its own, and a bus takes one of the user's inotify instances (128 by default), which the kernel gives back
# with a delay: so not all at once. Tests wait for processes more than they compute: eight at a time keep two processors busy.
test test-long test-dbus-broker test-smoke: export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH ?= 8
# Debug builds hash passwords cheaply then (113 ms otherwise).
test test-dbus-broker test-smoke: export SHARED_DEVICE_TEST_HASHES = yes
# What `test` leaves to `test-long`: attacks that take minutes, all orders of steps, random schedules of real programs, a real provider,
# a wait of 25 s that C programs cannot shorten, ten thousand forks, and of Firefox what is tested with Chromium too.
LONG_TESTS := SuspensionSequenceTests|TortureTests\.TortureTests|FleetSimulationTests|FleetHostileTests|DemoIdentityTests
LONG_TESTS := $(LONG_TESTS)|NotifyTests\.(OutageTests/aStoppedBusIsWaitedFor|ForkTests/tenThousandForks)|FirefoxTests/(cookies|closed|guarded)
HOSTILE_TESTS := (SharedDevice|Notifyd|Logout)HostileTests
build-tests:
	$(call need,`make test`,$(TEST_PACKAGES))
	$(DEBUG_BUILD) --build-tests

# The Python clients' tests wait for processes as the others do, so they run at the same time; what they say is printed at the end.
test: build-tests
	@clients=$$(mktemp); trap 'rm -f "$$clients"' EXIT; build=$$($(SWIFT) build --show-bin-path); \
	BUILD=$$build Tests/clients-check >"$$clients" 2>&1 & \
	$(SWIFT) test --skip-build --disable-xctest --skip '$(LONG_TESTS)|$(HOSTILE_TESTS)'; status=$$?; \
	wait $$! || status=1; cat "$$clients"; exit $$status
	@if command -v node >/dev/null; then node --test Tests/Console/values.test.mjs >/dev/null; else echo 'not tested without node: the console’s values'; fi

# Every test that needs no booted machine and nothing from PyPI.
test-all: setup-tests
	$(MAKE) test
	$(MAKE) test-long
	$(MAKE) test-dbus-broker test-pages test-release

# Where it is remembered what held of the model, so that its states are not all searched again; empty: always search.
MODEL_CACHE ?= .build/model

# The hostile tests judge services as they are installed: what is not optimized reads more slowly than the bus writes. They run alone, because
# they measure how long things take.
test-long test-dbus-broker: export NOTIFY_CENTER_TEST_NOTIFYD = $(shell $(SWIFT) build --configuration release --show-bin-path)/notifyd
test-long test-dbus-broker: export NOTIFY_CENTER_TEST_BROKER = $(shell $(SWIFT) build --configuration release --show-bin-path)/shared-device-broker
test-long: setup-tests build-tests
	MODEL_CACHE='$(MODEL_CACHE)' Tests/Broker/ProtocolModel/check
	for product in simulate notifyd shared-device-broker; do $(SWIFT) build --configuration release --product $$product || exit 1; done
	SCHEDULES=20000 SEED=1 $(SIMULATE)
	MUTANTS=yes SCHEDULES=20000 SEED=1 $(SIMULATE)
	$(SWIFT) test --skip-build --disable-xctest --filter '$(LONG_TESTS)'
	$(SWIFT) test --skip-build --disable-xctest --filter '(SharedDevice|Logout)HostileTests'
	$(SWIFT) test --skip-build --disable-xctest --filter NotifydHostileTests
	$(SWIFT) build --package-path Benchmarks --product notify-center-benchmarksPackageTests
	$(SWIFT) test --package-path Benchmarks --skip-build --disable-xctest

# The tests once more, on the default daemon of Fedora and Arch, and the hostile ones. Left out: those that use no bus, and the rest of `test-long`.
WITHOUT_BUS := (Cryptography|DeviceStorage|DeviceView|EmbeddedIdentity|HTTPClient|JSONWebSignature|OpenIDConnect|ProfileConversion|RecordVault|SharedDeviceSimulation|SharedDeviceTorture)Tests
HAS_DBUS_BROKER := (command -v dbus-broker-launch && command -v systemd-socket-activate) >/dev/null && unshare --mount true 2>/dev/null
NO_DBUS_BROKER := echo 'not tested on dbus-broker: it is not installed, or this user may not start it'
# What can break on dbus-broker alone: outages, match rules, names, signals, several users.
DBUS_BROKER_SMOKE := ^(DBusTransport|NotifyCenter|Notify|NotifyDaemon)Tests|SharedDeviceTests\.(BrokerProcess|SystemBus|ListenerApp)
test-smoke:
	@echo 'on dbus-broker:'; $(HAS_DBUS_BROKER) || { $(NO_DBUS_BROKER); exit 0; }; \
	NOTIFY_CENTER_TEST_BUS=dbus-broker $(SWIFT) test --skip-build --disable-xctest --filter '$(DBUS_BROKER_SMOKE)' --skip '$(LONG_TESTS)'

# What takes seconds of the hostile tests, with notifyd as Tests/Notify3/install-check has built it.
HOSTILE_SMOKE := NotifydHostileTests\..*/(floods|deceives)|SharedDeviceHostileTests\..*/(squatting|forgedPath|strangeEnforcement|privateMemory|inotify)
HOSTILE_SMOKE := $(HOSTILE_SMOKE)|SharedDeviceHostileTests\..*/(addedByRoot|fullDisk|frozenDisk|stuckRoot)
RELEASE_CHECK_SCRATCH ?= .build-release-check
test-hostile-smoke:
	NOTIFY_CENTER_TEST_NOTIFYD=$(abspath $(RELEASE_CHECK_SCRATCH))/static/release/notifyd SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=1 \
		$(SWIFT) test --skip-build --disable-xctest --filter '$(HOSTILE_SMOKE)'

test-dbus-broker: build-tests
	@$(HAS_DBUS_BROKER) || { $(NO_DBUS_BROKER); exit 0; }; \
	set -ex; export NOTIFY_CENTER_TEST_BUS=dbus-broker; \
	for product in notifyd shared-device-broker; do $(SWIFT) build --configuration release --product $$product; done; \
	$(SWIFT) test --skip-build --disable-xctest --skip '$(LONG_TESTS)|$(HOSTILE_TESTS)|^$(WITHOUT_BUS)'; \
	$(SWIFT) test --skip-build --disable-xctest --filter SharedDeviceHostileTests; \
	$(SWIFT) test --skip-build --disable-xctest --filter NotifydHostileTests

# The blocks of the pages, pasted into a shell or compiled: the README's first one builds a fresh clone.
test-pages: build
	$(call need,`make test-pages`,$(TEST_PACKAGES))
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/pages-check $(PAGES)

# Needs root, systemd and namespaces, so that it is not part of `test`.
test-booted: build
	for check in Tests/Broker/booted-check Tests/Broker/booted-login-check Tests/Adapters/booted-check; do \
		BUILD=$$($(SWIFT) build --show-bin-path) $$check || exit 1; \
	done

KIOSK := cage xwayland xvfb xdotool swayidle
test-kiosk: build
	$(call need,`make test-kiosk`,$(KIOSK))
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/kiosk-check

# What a desktop session has, and `test` leaves out where it is missing: some hundred packages, a print service among them, so that it is not part
# of `setup`. As root everything of it is run.
SESSION := xvfb xclip xsel sway wl-clipboard gnome-keyring libsecret-tools libglib2.0-bin cups cups-client libreoffice-writer-nogui firefox-esr
SESSION += bubblewrap xdg-dbus-proxy flatpak
test-session: build-tests
	$(call need,`make test-session`,$(SESSION) $(KIOSK))
	$(SWIFT) test --skip-build --disable-xctest --filter SessionServicesTests --filter PresetTests --filter SandboxedAppTests
	for check in Tests/Adapters/flatpak-check Tests/kiosk-check; do BUILD=$$($(SWIFT) build --show-bin-path) $$check || exit 1; done

# playwright and axe come from PyPI, so that it is not part of `test`. It says what it lacks.
CONSOLE_VENV ?= .build/console-venv
COCKPIT := cockpit-ws cockpit-bridge cockpit-system
test-console:
	$(call need,`make test-console`,$(PROGRAM_PACKAGES) $(FLEET_PACKAGES) $(COCKPIT) chromium python3-venv polkitd)
	for product in shared-device-broker shared-device shared-device-controller shared-device-agent; do $(DEBUG_BUILD) --product $$product || exit 1; done
	[ -x '$(CONSOLE_VENV)/bin/python3' ] || python3 -m venv '$(CONSOLE_VENV)'
	'$(CONSOLE_VENV)/bin/pip' install --quiet playwright axe-playwright-python
	PYTHON='$(CONSOLE_VENV)/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Console/console-check

# Microsoft's library is closed and comes from PyPI, so that it is not part of `test`. It says what it lacks.
MSAL_VENV ?= .build/msal-venv
test-msal:
	$(call need,`make test-msal`,$(PROGRAM_PACKAGES) gnome-keyring libsecret-tools libsecret-1-0 libwebkit2gtk-4.1-0 python3-venv python3-cryptography)
	for product in shared-device shared-device-broker shared-device-identity shared-device-microsoft-broker shared-device-sign-in; do $(DEBUG_BUILD) --product $$product || exit 1; done
	[ -x '$(MSAL_VENV)/bin/python3' ] || python3 -m venv '$(MSAL_VENV)'
	'$(MSAL_VENV)/bin/pip' install --quiet msal==1.39.0 pymsalruntime==0.20.7
	PYTHON='$(MSAL_VENV)/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Microsoft/msal-check

# Django OAuth Toolkit comes from PyPI, so that it is not part of `test`. It says what it lacks. With oauthlib 4 its device codes fail.
DJANGO_VENV ?= .build/django-venv
test-django:
	$(call need,`make test-django`,$(PROGRAM_PACKAGES) python3-venv chromium python3-cryptography)
	for product in shared-device shared-device-broker shared-device-identity shared-device-sign-in; do $(DEBUG_BUILD) --product $$product || exit 1; done
	[ -x '$(DJANGO_VENV)/bin/python3' ] || python3 -m venv '$(DJANGO_VENV)'
	'$(DJANGO_VENV)/bin/pip' install --quiet django==5.2.19 django-oauth-toolkit==3.4.1 oauthlib==3.3.1
	PYTHON='$(abspath $(DJANGO_VENV))/bin/python3' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Identity/django-check

# Everything of it is in namespaces of its own, and gone when it ends.
demo-console:
	$(call need,`make demo-console`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) $(COCKPIT))
	$(DEBUG_BUILD) --product shared-device-broker
	$(DEBUG_BUILD) --product shared-device
	$(SUDO) env PORT='$(or $(PORT),9097)' BUILD=$$($(SWIFT) build --show-bin-path) Tests/Console/console-check --demo

# In release: 100,000 devices as states behind 100 connections, with a real mosquitto that loses its data and a controller that is killed; then 10,000
# with a connection and a certificate each. Both say what they took.
test-fleet:
	$(call need,`make test-fleet`,$(PROGRAM_PACKAGES) $(FLEET_PACKAGES))
	for product in shared-device shared-device-controller fleet-load; do $(SWIFT) build --configuration release --product $$product || exit 1; done
	programs=$$($(SWIFT) build --configuration release --show-bin-path) && \
	$$programs/fleet-load --devices $(or $(DEVICES),100000) --connections $(or $(CONNECTIONS),100) && \
	$$programs/fleet-load --certified $(or $(CERTIFIED),10000)

# Two builds of their own, so that it is not part of `test`.
test-sanitizers:
	SWIFT='$(SWIFT)' Tests/sanitizers

test-release:
	SWIFT='$(SWIFT)' Tests/release-check
	SWIFT='$(SWIFT)' Tests/Notify3/install-check
	SWIFT='$(SWIFT)' Tests/Broker/install-broker-check

# A seed gives the same schedule each time: SEED=123 SCHEDULES=1. What the programs make of it may differ, so REPEAT=50. Hostile clients and a
# second user need root, and a full disk the right to mount; without, they are left out, and the run says so.
SCHEDULES ?= 2000
SEED ?= $(shell date +%s)
JOBS ?= 2
REPEAT ?= 1
SHRINK ?= 0
torture: build-tests
	TORTURE_SCHEDULES=$(SCHEDULES) TORTURE_SEED=$(SEED) TORTURE_JOBS=$(JOBS) TORTURE_REPEAT=$(REPEAT) \
		TORTURE_SHRINK=$(SHRINK) \
		$(SWIFT) test --skip-build --disable-xctest --filter 'SharedDeviceTortureTests.TortureTests/torture'

demo: setup
	@$(DEBUG_BUILD) --product demo
	@programs=$$($(SWIFT) build --show-bin-path) && \
	$$programs/demo $(if $(VERBOSE),--verbose) && \
	printf '\nThe same apps in a plan that anybody can write for their own:\n' && \
	{ /usr/bin/python3 -c 'import jeepney' 2>/dev/null || echo 'The app in Python is left out: apt-get install python3-jeepney'; } && \
	$$programs/shared-device check Examples/check-plan.json --html .build/demo-timeline.html $(if $(VERBOSE),--verbose)

# Not mosquitto's own service: the demonstration starts one of its own, on a port that is free.
demo-fleet:
	$(call need,`make demo-fleet`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) libmosquitto-dev $(FLEET_PACKAGES))
	@$(DEBUG_BUILD) --product demo-fleet
	@$$($(SWIFT) build --show-bin-path)/demo-fleet

# The provider of the demonstration is a process of its own: the package's service is neither configured nor needed.
demo-identity:
	$(call need,`make demo-identity`,$(PROGRAM_PACKAGES) glewlwyd python3-cryptography python3-jwt chromium)
	@$(DEBUG_BUILD) --product demo-identity
	@$$($(SWIFT) build --show-bin-path)/demo-identity $(if $(VERBOSE),--verbose)

demo-live: setup
	$(call need,`make demo-live`,$(PROGRAM_PACKAGES) tmux)
	$(DEBUG_BUILD)
	Examples/demo-live $$($(SWIFT) build --show-bin-path)

# ROWS='round-trip memory' runs these alone; Benchmarks/run --list names them all.
ROWS ?=
bench:
	Benchmarks/run $(ROWS)

# In a build of its own, with the modules instrumented. A crash names the command that replays it.
fuzz:
	$(call need,`make fuzz`,$(PROGRAM_PACKAGES) python3-venv)
	@SWIFT='$(SWIFT)' FUZZ_INPUT='$(FUZZ_INPUT)' Fuzzing/run '$(TARGET)' '$(or $(SECONDS),60)'

setup-docs:
	$(call need,`make docs`,$(NOTIFY_PACKAGES) $(DEVICE_PACKAGES) cmark-gfm mandoc)

docs: setup-docs
	@SWIFT=$(SWIFT) Documentation/build

lint:
	$(SWIFT) format lint --strict --recursive Package.swift Sources Tests Examples Benchmarks/Package.swift Benchmarks/Sources Fuzzing/Package.swift Fuzzing/Sources
	Tests/pages-check --reading

# What the libraries promise their users, against another commit.
API := NotifyCenter NotifyCenterTestKit NotifyCenterFoundation AppleNotifications notify SharedDevice SharedDeviceTestKit MSALCompatibility
test-api: setup-programs
	$(SWIFT) package diagnose-api-breaking-changes $(or $(BASE),origin/main) $(addprefix --products ,$(API))

# What is installed has the Swift and C++ runtimes linked in, so that it needs no Swift, and is linked by lld of the Swift toolchain, because
# gold cannot close all constants for writing (Packaging/constants.ld). Its addresses are chosen by the kernel at each start (PIE is the
# default), and everything that the dynamic linker writes is closed before main.
STATIC_SCRATCH ?= .build-static
STATIC_LIBS := $(abspath $(STATIC_SCRATCH))/static-libs
# The library needs -static-stdlib said twice, because `--static-swift-stdlib` is for programs only. The programs are compiled with the same
# flags, so that each module is compiled once for all of them; only links differ.
RELEASE = $(SWIFT) build --configuration release --static-swift-stdlib --disable-local-rpath -Xswiftc -static-stdlib \
	--scratch-path $(STATIC_SCRATCH) -Xlinker -L$(STATIC_LIBS) $(LINK)
LINK := -Xswiftc -use-ld=lld -Xlinker -T -Xlinker $(abspath Packaging/constants.ld) -Xlinker -znow -Xlinker -zrelro -Xlinker --build-id=sha1
# Relocations take a tenth of their room in a form that glibc knows since 2.36.
LINK += $(shell getconf GNU_LIBC_VERSION | sed 's/glibc/2.36/; s/ /\n/' | sort -CV && echo -Xlinker -zpack-relative-relocs)
# Scripts start notifyutil often, so libdbus is linked into it too: the shared libdbus brings seven further libraries, which the dynamic
# linker has to load each time. “no” leaves libdbus shared, for a distribution that wants a fix of libdbus to reach every program at once.
STATIC_LIBDBUS ?= yes
QUICK_START := $(abspath $(STATIC_SCRATCH))/quick-start
notifyutil: LINK_FLAGS = $$(STATIC_LIBDBUS='$(STATIC_LIBDBUS)' Packaging/quick-start '$(QUICK_START)')
# swift-argument-parser writes the completions of its programs.
notify-center shared-device: COMPLETIONS := yes
notifyutil notify-center notifyd shared-device shared-device-broker shared-device-identity shared-device-sign-in shared-device-cleanup shared-device-microsoft-broker shared-device-agent shared-device-controller: static-libs
	flags="$(LINK_FLAGS)" && \
	PKG_CONFIG_PATH="$(if $(LINK_FLAGS),$(QUICK_START):)$$PKG_CONFIG_PATH" \
	$(RELEASE) --product $@ $$flags
	$(if $(COMPLETIONS),Packaging/completions $(STATIC_SCRATCH)/release/$@ $(STATIC_SCRATCH)/completions)
	@echo built $(STATIC_SCRATCH)/release/$@

# For programs of any language, so the runtimes are linked into it. Nothing is exported but the functions of the headers
# (libdarwin-notify.map), so that a program that has one of them does not meet these. It stays loaded once it is (nodelete): its threads run
# its code.
library: static-libs
	$(RELEASE) --product darwin-notify -Xlinker --version-script=$(abspath Packaging/libdarwin-notify.map) \
		-Xlinker -soname=libdarwin-notify.so.1 -Xlinker -znodelete

# The same of CFNotificationCenter. The runtimes stay the toolchain's, because a program and this library have to share its CoreFoundation.
COREFOUNDATION_SCRATCH := .build-corefoundation
corefoundation:
	$(SWIFT) build --configuration release --scratch-path $(COREFOUNDATION_SCRATCH) --product CFNotificationCenter \
		-Xswiftc -use-ld=lld -Xlinker --version-script=$(abspath Packaging/libCFNotificationCenter.map) \
		-Xlinker -soname=libCFNotificationCenter.so.1 -Xlinker -znodelete

static-libs:
	@mkdir -p $(STATIC_LIBS)
	@ln -sf "$$(cc -print-file-name=libstdc++.a)" $(STATIC_LIBS)/libstdc++.a
	@ln -sf "$$(cc -print-file-name=libgcc_eh.a)" $(STATIC_LIBS)/libgcc_s.a

# The folders of the command line (prefix=, libdir=, DESTDIR= …) are variables of the script, which has their defaults.
install: install-notify install-broker install-console

install-notify:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install notify

install-broker:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install shared-device

install-console:
	Packaging/install console

# Not part of `all` and `install`: what they build needs no Swift.
install-corefoundation:
	STATIC_SCRATCH='$(COREFOUNDATION_SCRATCH)' Packaging/install corefoundation

# Not part of `all` and `install`: most machines are neither in a fleet nor its controller.
fleet: shared-device-agent shared-device-controller

install-fleet:
	STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install fleet

install-strip install-fleet-strip: export INSTALL_PROGRAM := install -s
install-strip: install
install-fleet-strip: install-fleet

uninstall:
	Packaging/install notify --remove
	Packaging/install shared-device --remove
	Packaging/install console --remove
	Packaging/install corefoundation --remove
	Packaging/install fleet --remove

deb:
	Packaging/build-packages deb

rpm:
	Packaging/build-packages rpm

# Needs root and namespaces, as test-booted does.
test-packages:
	$(call need,`make test-packages`,$(PROGRAM_PACKAGES) debhelper lintian appstream rpm rpmlint $(COCKPIT))
	$(MAKE) deb
	$(DEBUG_BUILD) --product listener-app
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/packages-check

# Both libraries for C from the debug build, and where programs find them.
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
	rm -rf .build .build-check .build-thread .build-address .build-static .build-docs .build-release-check .build-deb .build-rpm $(COREFOUNDATION_SCRATCH) Benchmarks/.build-bench Fuzzing/.build-fuzz Examples/*/.build
