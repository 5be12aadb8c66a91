# Everything a fresh machine needs: Swift 6.2 or newer is there, the rest is installed.
SHELL := /bin/bash

SWIFT ?= swift
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# What building, the tests and the demo use.
PACKAGES := libdbus-1-dev dbus-daemon dbus-bin libsqlite3-dev libcrypt-dev pkg-config gcc g++ python3 spin

.PHONY: help setup build check model simulate simulate-mutants test test-booted test-release torture demo demo-live bench docs lint clean
.PHONY: notifyutil notifyd shared-device shared-device-broker library install install-broker uninstall c-example notify-tool

help:
	@echo 'make demo       global sign-out across real processes, and its proof; VERBOSE=yes: with timelines and evidence'
	@echo 'make demo-live  the same parts, one terminal each, to play with (tmux)'
	@echo 'make check      for every save: the bus, the centers and notify(3), without long tests, C programs and shared device mode'
	@echo 'make test       all tests'
	@echo 'make model      the protocol of broker and apps, in every order of its steps (model checker SPIN)'
	@echo 'make simulate   broker, apps, bus and disk in one process, in random schedules; SCHEDULES=1000000 SEED= JOBS= (SCHEDULES=1: what happens)'
	@echo 'make simulate-mutants  deliberate mistakes in the broker, each of which the simulation has to find'
	@echo 'make test-release  what is linked and installed, in release with the Swift runtime linked in: do programs hear posts?'
	@echo 'make test-booted  the broker under its unit in a booted container, with dbus-broker and an app that systemd starts'
	@echo 'make torture    random schedules of sign-ins, kills, restarts, hostile clients, full disks; SCHEDULES=2000 SEED= JOBS=2 REPEAT=1 SHRINK=0'
	@echo 'make bench      the measurements, as ratios to plain C programs; ROWS='
	@echo 'make notifyutil the command line tool alone, linked to start fast'
	@echo 'make install    notify(3) for C: libdarwin-notify, headers, notifyd, notifyutil, man pages; PREFIX=/usr/local DESTDIR= STATIC_LIBDBUS=yes'
	@echo 'make install-broker  shared-device-broker and shared-device, with what D-Bus and systemd start the broker by'
	@echo 'make uninstall  removes both again'
	@echo 'make c-example  a listener in plain C, linked with -lCFNotificationCenter'
	@echo 'make notify-tool  each way to hear of a post, in plain C against what make install installed'
	@echo 'make docs       the documentation of the libraries, as a site of static pages'
	@echo 'make lint       the formatter in its strict mode'
	@echo 'make clean      removes what was built'

# Asks the package manager only for what is missing.
setup:
	@missing=$$(for package in $(PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || echo $$package; done); \
	if [ -n "$$missing" ]; then \
		echo "installing" $$missing; \
		$(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq $$missing >/dev/null; \
	fi

build: setup
	$(SWIFT) build

# A build of its own, so that it does not undo the other one. The broker is left out: its dependencies take longer than a save may.
check: setup
	@SWIFT='$(SWIFT)' Tests/check

model: setup
	Tests/Broker/ProtocolModel/check

# In release, because a debug build plays a tenth as many. A seed that fails plays again with SCHEDULES=1 SEED=…, and shrinks.
SIMULATE = $$($(SWIFT) build --configuration release --show-bin-path)/simulate
simulate: export SCHEDULES := $(or $(SCHEDULES),1000000)
simulate: setup
	$(SWIFT) build --configuration release --product simulate
	SEED=$(SEED) JOBS=$(JOBS) $(SIMULATE)

simulate-mutants: setup
	$(SWIFT) build --configuration release --product simulate
	MUTANTS=yes SCHEDULES=20000 $(SIMULATE)
	SWIFT='$(SWIFT)' Tests/Broker/SharedDeviceSimulationTests/mutants

# Where it is remembered what held of the model, so that `test` does not search all its states again; empty: always search.
MODEL_CACHE ?= .build/model

# Each test has a bus of its own, and a bus takes one of the user's inotify instances (128 by default), which the kernel gives back
# with a delay. So not all at once, and the tests of what needs such an instance itself before the many others. Tests wait for processes
# more than they compute: eight at a time keep two processors busy. On dbus-broker the sequences of SuspensionTests are not repeated: they
# compute for long and use no bus; nor are torture, and those tests of shared device mode that use no bus either. The hostile tests run alone,
# because they measure how long things take.
test: export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH ?= 8
test: setup
	MODEL_CACHE='$(MODEL_CACHE)' Tests/Broker/ProtocolModel/check
	$(SWIFT) build --configuration release --product simulate
	SCHEDULES=20000 SEED=1 $(SIMULATE)
	MUTANTS=yes SCHEDULES=20000 SEED=1 $(SIMULATE)
	$(SWIFT) test --disable-xctest --filter SharedDevice --filter CProgramTests --skip SharedDeviceHostileTests
	$(SWIFT) test --skip-build --disable-xctest --filter SharedDeviceHostileTests
	$(SWIFT) test --skip-build --disable-xctest --skip SharedDevice --skip CProgramTests
	@if command -v dbus-broker-launch systemd-socket-activate >/dev/null && unshare --mount true 2>/dev/null; then \
		echo 'once more on dbus-broker: transport, centers, Apple spellings and shared device mode'; \
		NOTIFY_CENTER_TEST_BUS=dbus-broker $(SWIFT) test --skip-build --disable-xctest \
			--filter DBusTransportTests --filter NotifyTests --filter NotifyDaemonTests --filter NotifyutilTests \
			--filter NotifyCenterTests --filter NotificationsTests \
			--filter NotifyCenterFoundationTests --filter SharedDeviceTests --filter SharedDeviceTestKitTests --filter MSALTests \
			--skip NotifyCenterTests.SuspensionTests && \
		NOTIFY_CENTER_TEST_BUS=dbus-broker $(SWIFT) test --skip-build --disable-xctest --filter SharedDeviceHostileTests; \
	else \
		echo 'not repeated on dbus-broker: it is not installed, or this user may not start it'; \
	fi

# Needs root, systemd and namespaces, so that it is not part of `test`.
test-booted: build
	BUILD=$$($(SWIFT) build --show-bin-path) Tests/Broker/booted-check

test-release: setup
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
torture: setup
	TORTURE_SCHEDULES=$(SCHEDULES) TORTURE_SEED=$(SEED) TORTURE_JOBS=$(JOBS) TORTURE_REPEAT=$(REPEAT) \
		TORTURE_SHRINK=$(SHRINK) \
		$(SWIFT) test --disable-xctest --filter 'SharedDeviceTortureTests.TortureTests/torture'

demo: setup
	@$(SWIFT) build --product demo
	@programs=$$($(SWIFT) build --show-bin-path) && \
	$$programs/demo $(if $(VERBOSE),--verbose) && \
	printf '\nThe same apps in a plan that anybody can write for their own:\n' && \
	$$programs/shared-device check Examples/check-plan.json --html .build/demo-timeline.html $(if $(VERBOSE),--verbose)

demo-live: PACKAGES += tmux
demo-live: setup
	$(SWIFT) build
	Examples/demo-live $$($(SWIFT) build --show-bin-path)

# ROWS='round-trip memory' runs these alone; Benchmarks/run --list names them all.
ROWS ?=
bench: setup
	Benchmarks/run $(ROWS)

docs: setup
	@SWIFT=$(SWIFT) Documentation/build

lint:
	$(SWIFT) format lint --strict --recursive Package.swift Sources Tests Examples Benchmarks/Package.swift Benchmarks/Sources

# The programs as they are installed: the Swift and C++ runtimes are linked in, so that they need no Swift, and those that start while
# somebody waits are linked for a fixed address, because relocating them is the greatest part of their start.
STATIC_SCRATCH ?= .build-static
STATIC_LIBS := $(abspath $(STATIC_SCRATCH))/static-libs
# Scripts start notifyutil often, so libdbus is linked into it too: the shared libdbus brings seven further libraries, which the dynamic
# linker has to load each time. “no” leaves libdbus shared, for a distribution that wants a fix of libdbus to reach every program at once.
STATIC_LIBDBUS ?= yes
QUICK_START := $(abspath $(STATIC_SCRATCH))/quick-start
notifyutil: LINK_FLAGS = $$(STATIC_LIBDBUS='$(STATIC_LIBDBUS)' Packaging/quick-start '$(QUICK_START)')
# The broker starts once, holds secrets, and reads what strangers send: the kernel chooses its address.
FIXED_ADDRESS := -Xswiftc -Xclang-linker -Xswiftc -no-pie
shared-device-broker: FIXED_ADDRESS :=
notifyutil notifyd shared-device shared-device-broker: setup
	@mkdir -p $(STATIC_LIBS)
	@ln -sf "$$(cc -print-file-name=libstdc++.a)" $(STATIC_LIBS)/libstdc++.a
	@ln -sf "$$(cc -print-file-name=libgcc_eh.a)" $(STATIC_LIBS)/libgcc_s.a
	flags="$(LINK_FLAGS)" && \
	PKG_CONFIG_PATH="$(if $(LINK_FLAGS),$(QUICK_START):)$$PKG_CONFIG_PATH" \
	$(SWIFT) build --configuration release --static-swift-stdlib --disable-local-rpath --scratch-path $(STATIC_SCRATCH) --product $@ \
		-Xlinker -L$(STATIC_LIBS) $$flags $(FIXED_ADDRESS)
	@echo built $(STATIC_SCRATCH)/release/$@

library: setup
	SWIFT='$(SWIFT)' Packaging/build-library $(STATIC_SCRATCH)/library

PREFIX ?= /usr/local
# Under sudo nothing is built: its PATH has no Swift, and what root writes into the build's folder would be in the way of the next build.
install: $(if $(SUDO_USER),,library notifyd notifyutil)
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install notify

install-broker: $(if $(SUDO_USER),,shared-device-broker shared-device)
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' STATIC_SCRATCH='$(STATIC_SCRATCH)' Packaging/install shared-device

uninstall:
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' Packaging/install notify --remove
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' Packaging/install shared-device --remove

c-example: setup
	$(SWIFT) build --product CFNotificationCenter
	SWIFT='$(SWIFT)' Examples/BroadcastReceiver/build $$($(SWIFT) build --show-bin-path) .build/broadcast-receiver
	@echo built .build/broadcast-receiver

notify-tool: setup
	PKG_CONFIG_PATH='$(DESTDIR)$(PREFIX)/lib/pkgconfig' SWIFT='$(SWIFT)' Examples/NotifyTool/build .build/notify-tool
	@echo built .build/notify-tool

clean:
	rm -rf .build .build-check .build-static .build-docs .build-release-check Benchmarks/.build-bench
