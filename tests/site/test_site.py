"""Facts about the pages a reader gets, seen in a real browser."""

import doctest
import json
import re
import subprocess
import sys
from urllib.parse import urldefrag

import pytest

from tests.site.conftest import STILL, Visit, build, inherit, look


def test_no_page_reports_an_error(visits):
    assert not [(visit.url, visit.errors) for _, visit in visits if visit.errors]


def test_no_page_asks_another_host(visits):
    asked = {
        url for site, visit in visits for url in visit.requests if not url.startswith((site.url, "data:", "blob:"))
    }
    assert not asked


def test_every_link_and_anchor_leads_somewhere(visits):
    ids = {visit.url: set(visit.facts["ids"]) for _, visit in visits}
    broken = []
    for site, visit in visits:
        for link in visit.facts["links"]:
            target, anchor = urldefrag(link)
            if not target.startswith(site.url) or "__" in anchor:  # the theme's own switches
                continue
            page = target if target.endswith(".html") else target.rstrip("/") + "/"
            if not site.file(target).is_file():
                broken.append(f"{visit.url}: {link} does not exist")
            elif anchor and page in ids and anchor not in ids[page]:
                broken.append(f"{visit.url}: nothing is called {link}")
    assert not broken, "\n".join(broken)


def test_no_link_leaves_the_path_the_site_lives_under(visits):
    strays = [
        f"{visit.url}: {link}"
        for site, visit in visits
        for link in visit.facts["links"]
        if link.startswith(site.url.removesuffix("dthw/")) and not link.startswith(site.url)
    ]
    assert not strays


def test_every_page_says_what_it_is(visits):
    for _, visit in visits:
        facts = visit.facts
        assert facts["title"], visit.url
        assert facts["language"] == "en"
        assert len(facts["description"]) > 40, visit.url
        assert facts["headings"] == 1, visit.url
    titles = [(site.url, visit.facts["title"]) for site, visit in visits if "404" not in visit.url]
    assert len(set(titles)) == len(titles)


def test_every_picture_loads_and_says_what_it_shows(visits):
    for _, visit in visits:
        for image in visit.facts["images"]:
            assert image["loaded"], f"{visit.url}: {image['src']} does not load"
            assert image["alt"], f"{visit.url}: {image['src']} has no text for those who cannot see it"


def test_no_page_scrolls_sideways(visits):
    assert not [line for _, visit in visits for line in visit.too_wide]


def test_axe_finds_nothing(visits):
    found = [line for _, visit in visits for line in visit.violations]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("width", [1400, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_search_dialog(tab, kitchen, width, scheme):
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.goto(f"{kitchen.url}?q=ring")
    tab.add_style_tag(content=STILL)
    tab.wait_for_selector(".md-search-result__item")
    visit = Visit(tab.url)
    look(tab, visit, "search open")
    assert not visit.violations, "\n".join(visit.violations)
    assert not visit.too_wide


# Copying


def unfold(tab) -> None:
    tab.add_style_tag(content=STILL + ".md-typeset .tabbed-block { display: block !important }")
    tab.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")


def lines(program: str) -> list[str]:
    # doctest drops the empty "..." that ends a function.
    return [line for line in program.splitlines() if line]


def copied(tab, block) -> str:
    """What lies in the clipboard after a click on the block's copy button."""
    block.scroll_into_view_if_needed()
    tab.evaluate("navigator.clipboard.writeText('nothing was copied')")
    block.hover()
    block.locator("button[data-clipboard-target]").click()
    return tab.evaluate("navigator.clipboard.readText()")


def test_a_copied_session_runs_and_prints_what_the_page_shows(tab, kitchen):
    tab.goto(kitchen.url)
    unfold(tab)
    session = tab.locator(".language-pycon").first
    shown = session.locator("code").text_content()
    program = copied(tab, session)
    assert ">>> def ring" in shown
    assert ">>> not a prompt" in program
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "first\nsecond\n\nfourth\n2(n-1)/n >>> not a prompt\n"
    names: dict = {}
    exec(program, names)
    assert names["ring"](4) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    # A session must not lose its prompts for good.
    assert session.locator("code").inner_text().startswith(">>> ")


def test_every_session_of_every_page_is_copied_without_prompts_and_output(tab, course, kitchen):
    sessions = 0
    for url in course.pages + kitchen.pages:
        tab.goto(url)
        unfold(tab)
        for block in tab.locator(".language-pycon").all():
            shown = block.locator("code").text_content()
            source = "".join(example.source for example in doctest.DocTestParser().get_examples(shown))
            assert lines(copied(tab, block)) == lines(source), url
            sessions += 1
    assert sessions >= 4


def test_a_copied_program_is_the_program(tab, kitchen):
    tab.goto(f"{kitchen.url}second/")
    block = tab.locator(".language-python").first
    assert copied(tab, block) == block.locator("code").text_content().rstrip()


# Search


def results(tab, site, query: str) -> list[str]:
    """Where a query leads, best first, without the address of the site and the marks of what was sought."""
    tab.goto(site.url)
    box = tab.locator("[data-md-component=search-query]")
    box.click()
    box.fill(query)
    box.press("End")  # the theme listens to keys
    # The line above the results says "Type to start searching" until there is an answer.
    tab.wait_for_function("() => /document/.test(document.querySelector('.md-search-result__meta').textContent)")
    links = tab.locator(".md-search-result__item a").evaluate_all(
        "all => all.map(a => [parseFloat(a.firstElementChild.dataset.mdScore), a.href])"
    )
    best = [url for _, url in sorted(links, key=lambda link: -link[0])]
    return [re.sub(r"\?h=[^#]*", "", url).removeprefix(site.url) for url in best]


def test_the_spellings_of_a_collective_find_the_same(tab, kitchen):
    for spellings in (
        ["allreduce", "all-reduce", "all_reduce", "AllReduce"],
        ["reduce-scatter", "reduce_scatter", "ReduceScatter"],
    ):
        found = [results(tab, kitchen, spelling) for spelling in spellings]
        assert {one[0] for one in found} == {"second/#collectives"}
        assert all(set(one) == set(found[0]) for one in found), found


@pytest.mark.parametrize(
    ("query", "section"),
    [
        ("NCCL_IB_GID_INDEX", "second/#names"),
        ("nccl_ib_gid_index", "second/#names"),
        ("H100", "second/#names"),
        ("2(n-1)/n", "second/#factor"),
        ("recursive doubling", "#tables"),
        ("torchrun nnodes", "#sessions-and-programs"),
    ],
)
def test_names_and_formulas_are_found_whole(tab, kitchen, query, section):
    assert section in results(tab, kitchen, query)[:3]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("ring vs tree allreduce", "lessons/6-"),
        ("all_reduce", "lessons/6-"),
        ("four ranks", "labs/all-reduce-on-four-ranks"),
    ],
)
def test_the_course_is_found_by_what_readers_type(tab, course, query, page):
    assert any(result.startswith(page) for result in results(tab, course, query)[:5])


# Keyboard


def focused(tab, test: str) -> bool:
    return tab.evaluate(f"() => {{ const at = document.activeElement; return {test} }}")


def test_the_first_stop_skips_to_the_content(tab, kitchen):
    tab.goto(kitchen.url)
    tab.keyboard.press("Tab")
    assert focused(tab, "at.matches('.md-skip') && at.getBoundingClientRect().top >= 0")
    tab.keyboard.press("Enter")
    # The address changes first; the theme then fetches the page and only after that goes to the heading.
    tab.wait_for_function("() => document.querySelector('h1:target')")
    tab.keyboard.press("Tab")
    assert focused(tab, "at.closest('article') !== null")


@pytest.mark.parametrize("box", ["pre > code", ".md-typeset__scrollwrap", "div.arithmatex", "figure > .scroll"])
def test_boxes_that_scroll_are_reached_and_scrolled_by_keyboard(tab, kitchen, box):
    tab.set_viewport_size({"width": 360, "height": 900})
    tab.goto(kitchen.url)
    tab.wait_for_selector(f":is({box})[tabindex='0']")
    for _ in range(80):
        tab.keyboard.press("Tab")
        if focused(tab, f"at.matches('.md-typeset :is({box})')"):
            break
    else:
        pytest.fail(f"80 steps did not reach {box}")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("() => document.activeElement.scrollLeft > 0")


def test_the_menu_of_a_phone_opens_by_keyboard_and_is_out_of_the_way_when_closed(tab, kitchen):
    tab.set_viewport_size({"width": 360, "height": 900})
    tab.goto(kitchen.url)
    for _ in range(10):
        tab.keyboard.press("Tab")
        assert not focused(tab, "at.closest('.md-sidebar--primary') !== null"), "the closed menu takes the focus"
        if focused(tab, "at.matches('.md-header [for=__drawer]')"):
            break
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => document.getElementById('__drawer').checked")
    visit = Visit(tab.url)
    look(tab, visit, "menu open")
    assert not visit.violations, "\n".join(visit.violations)


def test_search_opens_by_a_key_and_closes_by_escape(tab, kitchen):
    tab.goto(kitchen.url, wait_until="networkidle")
    tab.keyboard.press("/")
    tab.wait_for_function("() => document.activeElement.matches('.md-search__input')")
    tab.keyboard.press("Escape")
    tab.wait_for_function("() => !document.getElementById('__search').checked")


# Moving about


def test_a_page_reached_without_a_reload_is_as_good_as_one_loaded(tab, kitchen):
    tab.set_viewport_size({"width": 360, "height": 900})
    tab.goto(kitchen.url, wait_until="networkidle")
    tab.evaluate("window.still_here = true")
    tab.locator("article a", has_text="second page").click()
    # Once there, the address follows the heading in view, so its end may have moved on already.
    tab.wait_for_url("**/second/#*")
    assert tab.evaluate("window.still_here") is True
    tab.wait_for_selector("pre > code[tabindex='0']")
    assert tab.locator("nav.md-code__nav:not([role])").count() == 0


def test_the_page_follows_the_system_and_the_readers_choice(tab, kitchen):
    scheme = "() => document.body.dataset.mdColorScheme"
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    tab.goto(kitchen.url)
    assert tab.evaluate(scheme) == "slate"
    assert tab.locator("figure img:visible").get_attribute("src").endswith("#only-dark")
    tab.locator("label[for=__palette_1]:visible").click()
    tab.wait_for_function(f"{scheme} === 'default'".replace("() => ", "() => (") + ")")
    tab.reload()
    assert tab.evaluate(scheme) == "default"
    assert tab.locator("figure img:visible").get_attribute("src").endswith("#only-light")


def test_a_page_is_readable_without_javascript(browser, kitchen):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(kitchen.url)
    assert page.locator("math").first.is_visible()
    assert page.locator(".language-pycon code").first.is_visible()
    page.locator("summary", has_text="Exercise 6.1").click()
    assert page.get_by_text("The ring, above a certain size.").is_visible()
    context.close()


# Notebooks


def test_a_lab_shows_what_its_ranks_returned_and_can_be_downloaded(tab, course):
    tab.goto(f"{course.url}labs/all-reduce-on-four-ranks/")
    assert "rank 3 holds [10.0, 10.0, 10.0, 10.0, 10.0, 10.0]" in tab.locator("article").inner_text()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download this notebook").click()
    assert download.value.suggested_filename == "all-reduce-on-four-ranks.ipynb"
    cell = tab.locator(".highlight", has_text="import dthw")
    assert copied(tab, cell).startswith("import dthw")


def test_a_lab_that_fails_fails_the_build(tmp_path):
    pages = tmp_path / "pages"
    (pages / "labs").mkdir(parents=True)
    cell = {"cell_type": "code", "id": "a", "source": "1 / 0", "metadata": {}, "outputs": [], "execution_count": None}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (pages / "labs/broken.ipynb").write_text(json.dumps(notebook))
    result = build(inherit(tmp_path, pages, "[labs/broken.ipynb]"), tmp_path / "site")
    assert result.returncode != 0
    assert "ZeroDivisionError" in result.stdout + result.stderr


def test_an_unknown_command_in_a_formula_fails_the_build(tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# A page\n\nThe formula $\\nonsense{x}$.\n")
    result = build(inherit(tmp_path, pages, "[index.md]"), tmp_path / "site")
    assert result.returncode != 0
    assert "nonsense" in result.stdout + result.stderr
