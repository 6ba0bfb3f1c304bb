"""The built site, served as a host would serve it, and a real browser that visits every page once.

Two sites: the course itself, and the `kitchen`, two pages with one of everything that pages are made
of. Each is built strictly and once. `DTHW_SITE=folder` takes a course that is built already.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from axe_playwright_python.base import AXE_FILE_PATH as AXE
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
KITCHEN = Path(__file__).with_name("kitchen")
# A path below the host's root, as on GitHub Pages, where a link from the root would lead astray.
ADDRESS = "https://example.org/dthw/"
SCHEMES = ("light", "dark")
WIDTHS = (1400, 360)


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DTHW_SITE_URL": ADDRESS, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config), "-d", str(target)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)


def inherit(folder: Path, pages: Path, nav: str) -> Path:
    """A configuration that differs from the course's in its pages alone."""
    docs = folder / "docs"
    shutil.copytree(pages, docs)
    shutil.copytree(ROOT / "docs/assets/stylesheets", docs / "assets/stylesheets")
    shutil.copytree(ROOT / "docs/assets/javascripts", docs / "assets/javascripts")
    shutil.copy(ROOT / "docs/assets/favicon.svg", docs / "assets")
    config = folder / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\n"
        f"docs_dir: {docs}\n"
        f"theme:\n  custom_dir: {ROOT / 'docs/overrides'}\n"
        f"nav: {nav}\n"
    )
    return config


class Host(SimpleHTTPRequestHandler):
    address = mount = "/"

    def translate_path(self, path: str) -> str:
        path = urlsplit(path).path
        if not path.startswith(self.mount):
            return str(Path(self.directory) / "no such file")
        return super().translate_path("/" + path.removeprefix(self.mount))

    def do_GET(self) -> None:
        """The theme moves from page to page without a reload only between addresses of the sitemap."""
        if self.path != f"{self.mount}sitemap.xml":
            super().do_GET()
            return
        here = f"http://{self.headers['Host']}{self.mount}"
        body = Path(self.directory, "sitemap.xml").read_text().replace(self.address, here).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@dataclass
class Site:
    folder: Path
    url: str  # ends with a slash

    @property
    def pages(self) -> list[str]:
        """Addresses of all pages, that for a missing page too."""
        folders = sorted(page.parent.relative_to(self.folder).as_posix() for page in self.folder.rglob("index.html"))
        return [self.url if name == "." else f"{self.url}{name}/" for name in folders] + [f"{self.url}404.html"]

    def file(self, url: str) -> Path:
        path = self.folder / unquote(urlsplit(url).path.removeprefix(urlsplit(self.url).path))
        return path / "index.html" if path.is_dir() else path


def serve(folder: Path) -> Iterator[Site]:
    # The address the site was built for says under which path it has to live.
    home = ElementTree.parse(folder / "sitemap.xml").findtext("{*}url/{*}loc")
    handler = type("MountedHost", (Host,), {"address": home, "mount": urlsplit(home).path})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Site(folder, f"http://127.0.0.1:{server.server_port}{handler.mount}")
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if built := os.environ.get("DTHW_SITE"):
        folder = Path(built)
    else:
        folder = tmp_path_factory.mktemp("course") / "site"
        result = build(ROOT / "mkdocs.yml", folder)
        assert result.returncode == 0, result.stdout + result.stderr
    yield from serve(folder)


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kitchen")
    result = build(inherit(folder, KITCHEN, "[index.md, second.md]"), folder / "site")
    assert result.returncode == 0, result.stdout + result.stderr
    yield from serve(folder / "site")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    # Root, as in a container, has no sandbox to run in.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=[*quiet, "--no-first-run", *sandbox])
        yield running
        running.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(10_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors


STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"
READ = """() => ({
  title: document.title,
  language: document.documentElement.lang,
  description: document.querySelector('meta[name=description]')?.content ?? '',
  headings: document.querySelectorAll('h1').length,
  ids: [...document.querySelectorAll('[id], a[name]')].flatMap(e => [e.id, e.name ?? '']),
  links: [...document.querySelectorAll('a[href], link[href]')].map(e => e.href),
  images: [...document.images].map(e => ({src: e.src, alt: e.getAttribute('alt'), loaded: e.naturalWidth > 0})),
})"""


@dataclass
class Visit:
    """What a browser saw on one page."""

    url: str
    facts: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # in the console, or thrown
    requests: list[str] = field(default_factory=list)
    too_wide: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


VERDICT = """async only => (await axe.run(document, {
  resultTypes: ['violations'], ...(only && {runOnly: {type: 'rule', values: only}})
})).violations.flatMap(rule => rule.nodes.map(node => `${rule.id} ${node.target}\n    ${node.failureSummary}`))"""


def look(page: Any, visit: Visit, where: str, rules: list[str] | None = None) -> None:
    """Axe's verdict (by all its rules or those named), and whether the page is wider than its window."""
    # Two frames: the page has taken notice of its new size and colours.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    visit.violations += [f"{visit.url} {where}: {found}" for found in page.evaluate(VERDICT, rules)]
    wide = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    if wide[0] > wide[1]:
        visit.too_wide.append(f"{visit.url} {where}: {wide[0]} pixels")


def tour(browser: Any, site: Site) -> list[Visit]:
    visits = []
    for url in site.pages:
        visit = Visit(url)
        context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        page.on("console", lambda m, v=visit: v.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error, v=visit: v.errors.append(str(error)))
        page.on("request", lambda request, v=visit: v.requests.append(request.url))
        page.goto(url)
        page.add_style_tag(content=STILL)
        # All there is to see: what is folded, and the pictures further down.
        page.evaluate("""async () => {
          document.querySelectorAll('details').forEach(e => e.open = true);
          document.querySelectorAll('img').forEach(e => e.loading = 'eager');
          await Promise.all([...document.images].map(e => e.decode().catch(() => 0)));
        }""")
        visit.facts = page.evaluate(READ)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                # The dark page is the light one in other colours.
                look(page, visit, f"{scheme}, {width} pixels wide", ["color-contrast"] if scheme == "dark" else None)
        context.close()
        visits.append(visit)
    return visits


@pytest.fixture(scope="session")
def visits(browser: Any, course: Site, kitchen: Site) -> list[tuple[Site, Visit]]:
    return [(site, visit) for site in (course, kitchen) for visit in tour(browser, site)]
