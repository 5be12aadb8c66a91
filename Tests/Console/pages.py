"""The console's pages in a browser, and the checks that all of their tests share."""

import os
import pathlib

import axe_playwright_python
from device import Device
from playwright.sync_api import expect

port = int(os.environ["PORT"])
pictures = pathlib.Path(os.environ["SCREENSHOTS"])
axe = next(pathlib.Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()
hostile = "<img/src=x/onerror=alert(1)>"
shell = f"http://localhost:{port}/shared_device"
alone = f"http://localhost:{port}/cockpit/@localhost/shared_device/index.html"
fleet_alone = alone.replace("shared_device/", "shared_device_fleet/")


def watch_errors(page, errors):
    """Collects the errors in the page, and violations of its content policy."""
    page.errors = errors
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None)


def signed_in(browser, person, **options):
    """Opens the console in a separate browser context, signed in to Cockpit by PAM."""
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}).new_page()
    watch_errors(page, [])
    page.goto(shell)
    page.fill("#login-user-input", person)
    page.fill("#login-password-input", Device.people[person])
    page.click("#login-button")
    # First as one of Cockpit's pages, then without Cockpit's frame around it.
    expect(page.frame_locator("iframe[name$='/shared_device']").locator("#session-heading")).not_to_have_text("Asking the broker …")
    page.goto(alone)
    return page


def heading(page): return page.locator("#session-heading")


def announced(page, text):
    """Waits until screen readers announce the text."""
    expect(page.get_by_role("status")).to_have_text(text)


def greyed(page, card, is_greyed):
    """CO-4: outdated values have no colour."""
    expect(page.locator("body")).to_have_attribute("data-link", "gone" if is_greyed else "known")
    expect(page.locator(card)).to_have_css("filter", "grayscale(1)" if is_greyed else "none")


def check_accessibility(page, what):
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})")["violations"]
    assert not found, f"{what}: " + "; ".join(f"{each['id']}: {[node['target'] for node in each['nodes']][:3]} {each['nodes'][0]['failureSummary']}" for each in found)


def picture(page, name):
    page.screenshot(path=pictures / f"{name}.png", full_page=True)
