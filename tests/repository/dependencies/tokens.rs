//! Words and signs of a source text.

/// Returns the words and signs of a source text that form paths, without the modules named `tests`.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut tests) = (all(text), 0_usize, None);
    let opens: Vec<bool> = found.windows(3).map(|three| three == ["mod", "tests", "{"]).collect();
    let mut at = 0;
    found.retain(|token| {
        if tests.is_none() && opens.get(at).is_some_and(|opens| *opens) {
            tests = Some(depth);
        }
        at += 1;
        let is_kept = tests.is_none();
        match token.as_str() {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                tests = tests.filter(|began| *began != depth);
            }
            _ => {}
        }
        is_kept
    });
    found
}

/// Returns the words and signs of a whole source text that form paths. Each other sign becomes `.`. Comments and texts are left
/// out.
fn all(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    let rest = |at: usize, sign: &str| sign.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let find =
        |from: usize, sign: &str| (from..chars.len()).find(|at| rest(*at, sign)).unwrap_or(chars.len());
    while at < chars.len() {
        let c = chars[at];
        if rest(at, "//") {
            at = find(at, "\n");
        } else if rest(at, "/*") {
            at = find(at, "*/") + 2;
        } else if rest(at, "r\"") || rest(at, "r#") {
            let hashes = (at + 1..chars.len()).take_while(|at| chars[*at] == '#').count();
            at = find(at + 2 + hashes, &format!("\"{}", "#".repeat(hashes))) + 1 + hashes;
        } else if c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if rest(at, "'\"'") || rest(at, "'{'") || rest(at, "'}'") || rest(at, "'/'") {
            at += 3;
        } else if rest(at, "'\\") {
            at = find(at + 3, "'") + 1;
        } else if c.is_alphanumeric() || c == '_' {
            let end = (at..chars.len())
                .find(|at| !chars[*at].is_alphanumeric() && chars[*at] != '_')
                .unwrap_or(chars.len());
            found.push(chars[at..end].iter().collect());
            at = end;
        } else if rest(at, "::") {
            found.push(String::from("::"));
            at += 2;
        } else {
            if !c.is_whitespace() {
                found.push(if "{},;!".contains(c) { c.to_string() } else { String::from(".") });
            }
            at += 1;
        }
    }
    found
}
