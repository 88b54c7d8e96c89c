//! Checks the page in a browser: its content, its live update, its console, its widths and its colours.

use crate::browser::Browser;
use crate::node::Node;
use crate::{MIB, TWO, join};
use serde_json::json;

/// Returns an expression for the text of a field of a slice.
fn field(slice: &str, field: &str) -> String {
    format!("document.querySelector('[data-slice=\"{slice}\"] [data-f=\"{field}\"]')?.textContent ?? ''")
}

const IS_LIVE: &str = "document.getElementById('state')?.textContent === 'live'";

/// Starts a node, and a browser on its page, which asks the agent all the time.
fn opened(slices: &str) -> Option<(Node, Browser)> {
    let mut browser = Browser::start()?;
    let node = Node::start(slices);
    browser.open(&format!("http://{}/", node.address()));
    browser.until(IS_LIVE);
    Some((node, browser))
}

#[test]
fn the_page_shows_what_changes_without_being_loaded_again() {
    let Some((node, mut browser)) = opened(TWO) else { return };
    browser.value("window.isTheSame = true");
    let memory = field("a", "memory-text");
    browser.until(&format!("{memory} === '0 B used, limit 256MiB'"));
    let member = join(&node, "a");
    member.reserve(member.devices()[0].device, 64 * MIB).unwrap();
    browser.until(&format!("{memory} === '64.00 MiB used, limit 256MiB'"));
    browser.until(&format!("{} === '1'", field("a", "processes")));
    node.control("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":512,\"core\":40}");
    browser.until(&format!("{memory} === '64.00 MiB used, limit 512MiB'"));
    browser.until("document.querySelector('[data-slice=\"a\"] .limit').getAttribute('x1') === '400'");
    let bar = "document.querySelector('[data-slice=\"a\"] [data-f=\"memory\"] rect.c0')";
    browser.until(&format!("{bar}.getAttribute('width') === '125'"));
    // One more slice, one less, and one that cannot be made.
    node.configure(&format!(
        "{}[[slices]]\nname = \"c\"\ngpu = 7\n",
        &TWO[..TWO.find("[[slices]]\nname = \"b\"").unwrap()]
    ));
    node.signal(libc::SIGHUP);
    browser.until(
        "document.querySelector('[data-slice=\"c\"]') && !document.querySelector('[data-slice=\"b\"]')",
    );
    browser.until(&format!("{}.includes('gpu = 7 is no GPU')", field("c", "problem")));
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
