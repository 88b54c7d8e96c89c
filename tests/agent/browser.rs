//! A headless Chromium that a test drives by its protocol for developers, over two pipes.

use crate::support::skip;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Names of the program of Chromium, by distribution.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Longest time for an answer and for a change of a page.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Chromium reads messages from descriptor 3 and writes them to 4. A zero byte ends each message.
const PIPES: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    child: Child,
    orders: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// Errors and warnings of the page, as its console shows them.
    pub(crate) complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. If there is none, skips with the reason and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
        let Some(program) = PROGRAMS.iter().find(is_there) else {
            skip("the page in a browser: there is no chromium; to mend it: apt-get install chromium");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder can be made");
        let mut child = Command::new("sh")
            .args(["-c", PIPES, "sh", program, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--no-first-run", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let (tell, messages) = channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("messages are JSON");
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let orders = child.stdin.take().expect("it is piped");
        let (session, complaints) = (None, Vec::new());
        let mut browser = Self { child, orders, messages, session, sent: 0, complaints, _profile: profile };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let targets = self.call("Target.getTargets", json!({}));
        let infos = targets["targetInfos"].as_array().expect("there are targets");
        let page = infos.iter().find(|info| info["type"] == "page").expect("there is a page");
        let wanted = json!({"targetId": page["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", wanted)["sessionId"].clone();
        self.session = Some(session.as_str().expect("it has a name").to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the protocol, and notes the complaints of the page meanwhile.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.orders, "{message}\0").expect("the browser hears");
        self.orders.flush().expect("the browser hears");
        loop {
            let answer = self.messages.recv_timeout(TIMEOUT).expect("the browser answers");
            if answer["id"] == json!(self.sent) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_bad = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => parameters["type"] != "log",
            Some("Log.entryAdded") => parameters["entry"]["level"] != "verbose",
            _ => false,
        };
        if is_bad {
            self.complaints.push(parameters.to_string());
        }
    }

    /// Opens a page.
    pub(crate) fn open(&mut self, address: &str) {
        let gone = self.call("Page.navigate", json!({"url": address}));
        assert!(gone["errorText"].is_null(), "{gone}");
    }

    /// Returns the value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let wanted = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", wanted);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses Tab or Enter, with the shift key if `is_shifted`.
    pub(crate) fn press(&mut self, key: &str, is_shifted: bool) {
        let (code, text) = if key == "Enter" { (13, "\r") } else { (9, "") };
        // The shift key is bit 3 of the modifiers.
        let modifiers = if is_shifted { 8 } else { 0 };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) {
        let end = Instant::now() + TIMEOUT;
        while self.value(&format!("Boolean({expression})")) != json!(true) {
            assert!(Instant::now() < end, "{expression}\n{}", self.value("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited_for = self.child.wait();
    }
}
