#!/usr/bin/python3
"""Stands in for a person with a browser at the pages of Django OAuth Toolkit.

It reads forms, fills them in, follows redirects, and keeps cookies while it runs. Started under the name of a browser that
the prompt knows, with `--person=NAME --ca=FILE` among its arguments, it opens the page in its last argument.
"""

import html
import re
import ssl
import sys
import time
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar


class Forms(HTMLParser):
    """Collects the fields and buttons of a page's form."""

    def __init__(self, page):
        super().__init__()
        self.fields, self.buttons = {}, {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if name := attributes.get("name"):
            fields = self.buttons if tag == "button" or attributes.get("type") == "submit" else self.fields
            fields.setdefault(name, attributes.get("value") or "")


class Visitor:
    def __init__(self, person, authority):
        self.person = person
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar()), urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)))
        self.seen = []

    def open(self, address, form=None):
        data = urllib.parse.urlencode(form).encode() if form else None
        # Django checks the page that a form comes from.
        request = urllib.request.Request(address, data, {"Referer": address})
        with self.opener.open(request, timeout=60) as answer:
            self.address, self.page = answer.url, answer.read().decode()
        self.seen.append(urllib.parse.urlsplit(self.address).path)

    def send(self, **values):
        """Sends the form of the current page: its own values, the values given here, and the pressed button."""
        self.open(self.address, {**Forms(self.page).fields, **values})

    def sign_in(self, address):
        """Opens a page that asks for a sign-in, and signs in."""
        self.open(address)
        assert self.seen == ["/accounts/login/"], f"the visitor is not asked to sign in: {self.seen}"
        self.send(username=self.person, password="correct horse " + self.person)


def main():
    arguments = dict(argument[2:].split("=", 1) for argument in sys.argv[1:] if argument.startswith("--") and "=" in argument)
    with open(urllib.parse.urlsplit(sys.argv[-1]).path) as file:
        address = html.unescape(re.search(r'url=([^"]+)', file.read()).group(1))
    visitor = Visitor(arguments["person"], arguments["ca"])
    visitor.sign_in(address)
    visitor.send(allow="Authorize")
    # The window stays open until the prompt closes it.
    time.sleep(120)


if __name__ == "__main__":
    main()
