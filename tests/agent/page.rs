//! Checks the page in a browser: its content, its live update, its console, its widths, its colours, and its use by keyboard.

use crate::browser::Browser;
use crate::node::{Node, text};
use crate::{MIB, TWO, join};
use serde_json::json;

/// Returns an expression for the text of a field of a slice.
fn field(slice: &str, field: &str) -> String {
    format!("document.querySelector('[data-slice=\"{slice}\"] [data-f=\"{field}\"]')?.textContent ?? ''")
}

const IS_LIVE: &str = "document.getElementById('state')?.textContent === 'live'";

/// Starts a browser on the page of a node, which asks the agent all the time.
fn open(node: &Node) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open(&format!("http://{}/", node.address()));
    browser.until(IS_LIVE);
    Some(browser)
}

/// Starts a node, and a browser on its page.
fn opened(slices: &str) -> Option<(Node, Browser)> {
    let node = Node::start(slices);
    let browser = open(&node)?;
    Some((node, browser))
}

#[test]
fn the_page_shows_changes_without_being_loaded_again() {
    let Some((node, mut browser)) = opened(TWO) else { return };
    browser.value("window.isTheSame = true");
    let memory = field("a", "memory-text");
    browser.until(&format!("{memory} === '0 B used, limit 256MiB'"));
    let member = join(&node, "a");
    member.reserve(member.devices()[0].device, 64 * MIB).unwrap();
    browser.until(&format!("{memory} === '64.00 MiB used, limit 256MiB'"));
    browser.until(&format!("{} === '1'", field("a", "processes")));
    let listed = |size: &str| {
        let own = std::process::id();
        format!(
            "[...document.querySelectorAll('[data-slice=\"a\"] details li')].map((one) => one.textContent.startsWith('{own} {size} ')).join() === 'true'"
        )
    };
    browser.until(&listed("64.00 MiB"));
    member.reserve(member.devices()[0].device, 32 * MIB).unwrap();
    browser.until(&listed("96.00 MiB"));
    assert_eq!(member.refund(member.devices()[0].device, 32 * MIB), 0);
    let summary = |is_seen| {
        format!("document.querySelector('[data-slice=\"a\"] summary').checkVisibility() === {is_seen}")
    };
    browser.until(&summary(true));
    node.control("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":512,\"core\":40}");
    browser.until(&format!("{memory} === '64.00 MiB used, limit 512MiB'"));
    browser.until("document.querySelector('[data-slice=\"a\"] .limit').getAttribute('x1') === '400'");
    let bar = "document.querySelector('[data-slice=\"a\"] [data-f=\"memory\"] rect.c0')";
    browser.until(&format!("{bar}.getAttribute('width') === '125'"));
    // The configuration has one more slice, one less, and one that the agent cannot make.
    node.configure(&format!(
        "{}[[slices]]\nname = \"c\"\ngpu = 7\n",
        &TWO[..TWO.find("[[slices]]\nname = \"b\"").unwrap()]
    ));
    node.signal(libc::SIGHUP);
    browser.until(
        "document.querySelector('[data-slice=\"c\"]') && !document.querySelector('[data-slice=\"b\"]')",
    );
    browser.until(&format!("{}.includes('gpu = 7 is no GPU')", field("c", "problem")));
    member.leave();
    browser.until(&summary(false));
    browser.until("!document.querySelector('[data-slice=\"a\"] details li')");
    assert_eq!(browser.value("window.isTheSame === true"), json!(true), "it was loaded again");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn a_page_whose_agent_refuses_says_so_and_goes_on_when_it_answers() {
    let Some((node, mut browser)) = opened(TWO) else { return };
    // An agent with too many clients answers like this.
    browser.value(
        "window.real = window.fetch; window.fetch = (path) => path === '/' ? Promise.resolve(new Response('busy', {status: 429})) : window.real(path); 0",
    );
    node.configure(&format!("{TWO}[[slices]]\nname = \"c\"\ngpu = 0\n"));
    node.signal(libc::SIGHUP);
    browser.until("document.getElementById('state').textContent.includes('429')");
    browser.until("document.querySelector('main [data-slice=\"a\"]')");
    browser.value("window.fetch = window.real; 0");
    browser.until("document.querySelector('main [data-slice=\"c\"]')");
    browser.until(IS_LIVE);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn the_page_fits_a_phone_and_has_the_colours_of_the_system() {
    let Some((_node, mut browser)) = opened(TWO) else { return };
    for width in [320, 1280] {
        let screen = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        browser.call("Emulation.setDeviceMetricsOverride", screen);
        browser.until(&format!("innerWidth === {width} && document.documentElement.scrollWidth <= {width}"));
    }
    for (scheme, ground) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(16, 19, 24)")] {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", features);
        browser.until(&format!("getComputedStyle(document.body).backgroundColor === '{ground}'"));
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Functions of the page: the name of an element, the names of all that take the focus, and the state of the focus.
const NAMES: &str = "
window.nameOf = (one) => one === document.body ? '' : one.getAttribute('aria-label') ?? one.textContent.trim();
window.stops = () => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')]
    .filter((one) => one.tabIndex >= 0 && one.checkVisibility()).map(nameOf);
window.isSeen = () => {
    const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
    return one.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 &&
        box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
};
0";

/// Returns the name of the element that has the focus; nothing if it is the page itself.
fn focused(browser: &mut Browser) -> String {
    text(&browser.value("nameOf(document.activeElement)")).to_owned()
}

/// Presses Tab until the focus has left the page, and returns the names of the elements that had it.
fn walk(browser: &mut Browser, is_backward: bool) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        browser.press("Tab", is_backward);
        let name = focused(browser);
        if name.is_empty() {
            return names;
        }
        browser.until("isSeen()");
        names.push(name);
        assert!(names.len() < 100, "the focus does not leave the page: {names:?}");
    }
}

#[test]
fn a_keyboard_reaches_everything_in_order_sees_where_it_is_and_leaves() {
    let node = Node::start(TWO);
    let _member = join(&node, "a");
    let Some(mut browser) = open(&node) else { return };
    browser.value(NAMES);
    let links = ["metrics", "GPUs as JSON", "slices as JSON"];
    let stops = [&["Skip to the slices", "GPU 0", "slice a", "Processes", "slice b"][..], &links].concat();
    assert_eq!(browser.value("stops()"), json!(stops));
    assert_eq!(walk(&mut browser, false), stops);
    let backward: Vec<&str> = stops.iter().rev().copied().collect();
    assert_eq!(walk(&mut browser, true), backward);
    // The first link skips the GPUs.
    browser.press("Tab", false);
    browser.press("Enter", false);
    browser.until("document.activeElement.id === 'slices' && isSeen()");
    browser.press("Tab", false);
    assert_eq!(focused(&mut browser), "slice a");
    browser.press("Tab", false);
    browser.press("Enter", false);
    browser.until("document.querySelector('[data-slice=\"a\"] details').open");
    // The configuration has one more slice. The focus stays on its element, and the processes stay open.
    node.configure(&format!("[[slices]]\nname = \"0\"\ngpu = 0\n{TWO}"));
    node.signal(libc::SIGHUP);
    browser.until("document.querySelector('main [data-slice=\"0\"]')");
    assert_eq!(focused(&mut browser), "Processes");
    browser.until("isSeen() && document.activeElement.closest('[data-slice=\"a\"] details').open");
    assert_eq!(browser.complaints, Vec::<String>::new());
}
