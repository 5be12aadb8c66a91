"""Tests what a person sees and does on the page of a fleet, and on the page of a check."""

import json
import pathlib
import re
import shutil
import subprocess

from device import programs, wait_for
from fleet import Fleet
from pages import announced, check_accessibility, fleet_alone, greyed, hostile, picture, pictures, watch_errors
from playwright.sync_api import expect


def tests_of_fleet(device, pages):
    """pages: the open pages, by name."""
    def fleet_of_thousands():
        """CO-2, CO-3: root sees the fleet of 10,001 devices; few rows are elements of the page, and keys reach all devices."""
        pages["of the fleet"] = fleet = Fleet(device, 10_000)
        page = pages["root"].context.new_page()
        watch_errors(page, pages["root"].errors)
        page.goto(fleet_alone)
        pages["fleet"] = page
        expect(page.locator("#order-heading")).to_have_text("No order was given yet")
        expect(page.locator("#device-count")).to_contain_text("10,001 devices", timeout=30_000)
        assert page.locator("#device-list [data-name]").count() < 60
        assert page.locator("#device-list").get_attribute("aria-rowcount") == "10002"
        page.locator("#device-list").focus()
        page.keyboard.press("End")
        expect(page.locator("#device-list .active .device")).to_have_text("ward-1")
        expect(page.locator("#device-list .active")).to_be_in_viewport()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#device-list .active .device")).to_have_text("till-1")
        check_accessibility(page, "the fleet")

    def order_of_fleet():
        """An order's progress, an owing app with HTML as its name (CO-5), and the device's waterfall, by keyboard alone."""
        page, fleet = pages["fleet"], pages["of the fleet"]
        device.sign_in("ada", "org.example.orders")
        wait_for("apps to hold data", lambda: len(device.holders()) == 4)
        device.stop(hostile)
        fleet.sign_out("--group", "shop")
        expect(page.locator("#order-heading")).to_have_text(re.compile("Order [0-9]+"))
        expect(page.locator("#order-words")).to_contain_text("0 of 10,001 devices have done it")
        expect(page.locator("#order-words")).to_contain_text("shift is over")
        announced(page, re.compile("^Order [0-9]+: 0 of 10,001 devices have done it"))
        expect(page.locator("#order .legend")).to_contain_text("10,000 unknown")
        page.locator("#device-text").focus()
        page.keyboard.type("ward-")
        expect(page.locator("#device-count")).to_contain_text("1 of 10,001 devices")
        row = page.locator("#device-list [data-name='ward-1']")
        expect(row.locator(".state")).to_contain_text("cleaning")
        expect(row.locator(".note")).to_contain_text(hostile)
        assert page.locator("img").count() == 0
        page.locator("#device-list").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#device-heading")).to_be_focused()
        expect(page.locator("#device .rows > li")).to_have_count(4)
        expect(page.locator("#device .rows > li .state", has_text="clean after")).to_have_count(3)
        expect(page.locator("#device .rows > li", has_text="onerror").locator(".state")).to_contain_text("has not heard of it")
        check_accessibility(page, "a device of the fleet")
        page.locator("#as-table").click()
        expect(page.locator("#device tbody tr")).to_have_count(4)
        check_accessibility(page, "its table")
        page.locator("#as-table").click()
        # The device becomes late by time alone, without a new report.
        expect(page.locator("#device-facts")).to_contain_text("signed out, apps owe")
        expect(page.locator("#device-facts")).to_contain_text("stuck", timeout=90_000)
        expect(row.locator(".state")).to_contain_text("stuck")
        device.go_on(hostile)
        expect(page.locator("#device .rows > li .state", has_text="clean after")).to_have_count(4)
        expect(row.locator(".state")).to_contain_text("clean")
        expect(page.locator("#order-words")).to_contain_text("1 of 10,001 devices have done it")
        page.locator("#device-heading").focus()
        page.keyboard.press("Escape")
        expect(page.locator("#device-list")).to_be_focused()

    def controller_gone():
        """CO-4: without the controller the devices' states are unknown, with the time of its last response; then known again."""
        page, fleet = pages["fleet"], pages["of the fleet"]
        fleet.kill_controller()
        expect(page.locator("#notice")).to_contain_text("The controller does not respond")
        expect(page.locator("#notice")).to_contain_text("Its last response is from")
        greyed(page, "#devices", True)
        announced(page, "The controller does not respond: how the devices are is unknown.")
        check_accessibility(page, "without a controller")
        fleet.start_controller()
        expect(page.locator("#notice")).to_be_hidden()
        greyed(page, "#devices", False)
        fleet.sign_out("--device", "ward-1")
        expect(page.locator("#order-words")).to_contain_text("The one device has done it")
        page.locator("#order-choice").select_option(index=1)
        expect(page.locator("#order-words")).to_contain_text("1 of 10,001 devices have done it")

    def many_choices():
        """However often the user chooses another order, at most one request waits at the controller, which limits them."""
        page = pages["fleet"]
        page.evaluate("""async () => {
            const { Controller } = await import('./controller.js');
            const real = Controller.prototype.devices;
            Object.assign(window, { asked: 0, waiting: 0, most: 0, unwatch: () => { Controller.prototype.devices = real; } });
            Controller.prototype.devices = async function (fields) {
                window.asked += 1;
                window.waiting += fields.waits ? 1 : 0;
                window.most = Math.max(window.most, window.waiting);
                try {
                    return await real.call(this, fields);
                } finally {
                    window.waiting -= fields.waits ? 1 : 0;
                }
            };
        }""")
        for words in ["The one device has done it", "1 of 10,001 devices have done it"] * 4:
            page.locator("#order-choice").select_option(index=0 if words.startswith("The") else 1)
            expect(page.locator("#order-words")).to_contain_text(words)
            before = page.evaluate("window.asked")
            wait_for("the next question", lambda: page.evaluate("window.asked") > before)
        assert page.evaluate("window.most") <= 1
        expect(page.locator("#notice")).to_be_hidden()
        page.evaluate("window.unwatch()")

    def device_without_answer():
        """CO-4: a device without a response stays open and grey, and the request is retried until there is a response."""
        page = pages["fleet"]
        page.locator("#device-text").fill("ward-")
        page.locator("#device-list [data-name='ward-1']").click()
        # The page still shows the device.
        expect(page.locator("#device")).to_be_visible()
        expect(page.locator("#device")).to_have_attribute("data-link", "known")
        expect(page.locator("#device-facts")).not_to_contain_text("session ")
        page.evaluate("""async () => {
            const { Controller } = await import('./controller.js');
            window.answer = (original => () => { Controller.prototype.device = original; })(Controller.prototype.device);
            Controller.prototype.device = () => Promise.reject(new Error('no answer'));
        }""")
        device.sign_in("grace", "org.example.orders")
        expect(page.locator("#device")).to_have_attribute("data-link", "gone", timeout=30_000)
        expect(page.locator("#device")).to_have_css("filter", "grayscale(1)")
        expect(page.locator("#device-facts")).to_contain_text("the request is repeated")
        check_accessibility(page, "a device without an answer")
        page.evaluate("window.answer()")
        expect(page.locator("#device")).to_have_attribute("data-link", "known")
        expect(page.locator("#device-facts")).to_contain_text("session ")
        expect(page.locator("#device-facts")).not_to_contain_text("the request is repeated")
        device.sign_out()
        page.locator("#close").click()

    def fleet_in_colours():
        """The fleet in the dark, and on 320 pixels."""
        page = pages["fleet"]
        page.locator("#device-text").fill("")
        page.locator("#device-list").focus()
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        expect(page.locator("#device")).to_be_visible()
        picture(page, "fleet-light")
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        # Colours in a transition have too little contrast, so all colours must change at once.
        assert page.evaluate("""() => { const page = document.documentElement, now = page.dataset.theme; page.dataset.theme = "light"; getComputedStyle(page).color;
            const moving = document.getAnimations().length; page.dataset.theme = now; getComputedStyle(page).color; return moving + document.getAnimations().length; }""") == 0
        check_accessibility(page, "the fleet, dark")
        picture(page, "fleet-dark")
        page.set_viewport_size({"width": 320, "height": 700})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        check_accessibility(page, "the fleet, 320 px")
        picture(page, "fleet-narrow")

    def fleet_for_whom():
        """CO-2: the controller responds only to root and its own user; an operator of the device sees no fleet."""
        page = pages["operator"].context.new_page()
        watch_errors(page, pages["operator"].errors)
        page.goto(fleet_alone)
        expect(page.locator("#notice")).to_contain_text("You may not see this fleet")
        assert page.locator("#device-list [data-name]").count() == 0
        check_accessibility(page, "the fleet of another user")

    def report_page():
        """The page of `shared-device check` draws with this code: its timeline works by keyboard, and names are texts."""
        report = device.folder / "report.html"
        done = subprocess.run([programs / "shared-device", "check", write_plan(device.folder), "--html", report], capture_output=True, text=True, timeout=120)
        assert report.exists(), done.stderr[-2000:]
        page = pages["root"].context.new_page()
        watch_errors(page, pages["root"].errors)
        page.goto(f"file://{report}")
        rows = page.locator(".drawing .rows > li")
        expect(rows.filter(has_text="onerror")).to_have_count(1)
        expect(rows.filter(has_text="onerror").locator(".state")).to_contain_text("not clean")
        assert page.locator("img").count() == 0
        rows.filter(has_text="onerror").locator("button.name").focus()
        page.keyboard.press("Enter")
        expect(rows.filter(has_text="onerror").locator(".opened")).to_be_visible()
        check_accessibility(page, "the report")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as a picture").click()
        saved = pathlib.Path(download.value.path()).read_text()
        assert saved.startswith("<svg") and "<script" not in saved and "--ink" in saved
        page.set_viewport_size({"width": 320, "height": 700})
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        check_accessibility(page, "the report, dark, 320 px")
        picture(page, "report")

    of_fleet = [fleet_of_thousands, order_of_fleet, controller_gone, many_choices, device_without_answer, fleet_in_colours, fleet_for_whom] if shutil.which("mosquitto") else []
    if not of_fleet:
        print("left out: the fleet; mosquitto is not installed")
    return [*of_fleet, report_page]


def write_plan(folder):
    """Writes a plan for `shared-device check` with an app that does not delete its data."""
    plan = folder / "plan.json"
    app = {"identifier": hostile, "executable": "sh", "arguments": ["-c", "echo left > \"$XDG_DATA_HOME/notes\"; echo up; exec sleep 600"]}
    steps = [{"do": "signIn", "user": "ada"}, {"do": "waitForLine", "app": hostile, "containing": "up"}, {"do": "expect", "present": ["left"]}, {"do": "signOut"},
             {"do": "expect", "heardWithin": 50, "absent": ["left"]}]
    plan.write_text(json.dumps({"title": hostile, "users": ["ada"], "apps": [app], "steps": steps}))
    return plan


def draw_fleet(device, page):
    """Draws an order that one device has nearly carried out, and that the other devices have never received."""
    fleet = Fleet(device, 8)
    device.go_on("org.example.photos")
    # Without a response, `holders` is empty, too.
    wait_for("the round", lambda: device.call("GetRunningApps") and not device.holders())
    device.sign_in("ada", "org.example.orders")
    wait_for("apps to hold data", lambda: len(device.holders()) == 4)
    device.stop("org.example.photos")
    fleet.sign_out("--all")
    page.goto(fleet_alone)
    page.emulate_media(color_scheme="light")
    page.locator("#device-list [data-name='ward-1']").click()
    page.locator("#device .rows > li .state", has_text="clean after").nth(2).wait_for()
    for kind, width, colours in [("", 1100, "light"), ("-dark", 1100, "dark"), ("-narrow", 320, "light")]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=colours)
        expect(page.locator("html")).to_have_attribute("data-theme", colours)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=pictures.with_name(f"fleet{kind}.png"), full_page=True)


def draw_check(device, page):
    """Makes the picture of the README from the page of the example plan."""
    report = device.folder / "report.html"
    subprocess.run([programs / "shared-device", "check", "Examples/check-plan.json", "--html", report], capture_output=True, timeout=120, check=True)
    for kind, colours in [("", "light"), ("-dark", "dark")]:
        page.emulate_media(color_scheme=colours)
        page.goto(f"file://{report}")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as a picture").click()
        download.value.save_as(pictures.with_name(f"sign-out{kind}.svg"))
