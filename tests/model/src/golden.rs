//! Runs the golden schedules of `tests/conformance/cases`, and those of this crate alone, over the shipping
//! machines.

mod deeds;
mod expect;
mod guards;
mod session;
mod settings;
mod watching;
mod words;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::PathBuf;

use guards::Cluster;
use session::Session;
use settings::Settings;
use words::Line;

/// Runs one case; a sentence on the first line that does not hold.
fn run(text: &str) -> Result<usize, String> {
    let mut settings = Settings::default();
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut client = "A".to_owned();
    let mut cluster: Option<Cluster> = None;
    let (mut now, mut expectations) = (0, 0);
    for (number, raw) in text.lines().enumerate() {
        let told = |problem: String| format!("line {}: {}: {problem}", number + 1, raw.trim());
        match Line::parse(raw).map_err(told)? {
            Line::Nothing => {}
            Line::Setting(name, value) => settings.set(&name, &value).map_err(told)?,
            Line::Client(name) => client = name,
            Line::At(time, words) => {
                if time < now {
                    return Err(told("time goes backwards".to_owned()));
                }
                now = time;
                let cluster = cluster.get_or_insert_with(|| Cluster::new(settings.nodes()));
                cluster.now = time;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if let ["node", node, rest @ ..] = words.as_slice()
                    && !rest.contains(&"->")
                {
                    if cluster.happen(node, rest).map_err(told)? {
                        for session in sessions.values_mut() {
                            session.look(cluster, node, time);
                        }
                    }
                    continue;
                }
                let number = u8::try_from(sessions.len()).unwrap_or(u8::MAX);
                let session = match sessions.entry(client.clone()) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        let session = Session::new(settings.clone(), number, cluster);
                        entry.insert(session.map_err(told)?)
                    }
                };
                session.happen(time, &words, cluster).map_err(told)?;
            }
            Line::Expect(words) => {
                expectations += 1;
                let session = sessions.get_mut(&client);
                let session = session.ok_or_else(|| told("nothing happened".to_owned()))?;
                session.expect(&words).map_err(told)?;
            }
        }
    }
    Ok(expectations)
}

/// Runs every case; for each that does not hold, its name and the reason.
pub(crate) fn run_all() -> io::Result<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    for dir in ["../conformance/cases", "schedules"] {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(dir);
        let entries = fs::read_dir(&dir)?.map(|entry| entry.map(|entry| entry.path()));
        let mut own: Vec<_> = entries.collect::<io::Result<_>>()?;
        own.sort();
        paths.append(&mut own);
    }
    let mut failed = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match run(&fs::read_to_string(path)?) {
            Ok(0) => failed.push(format!("{name}: expects nothing")),
            Ok(_) => {}
            Err(problem) => failed.push(format!("{name}: {problem}")),
        }
    }
    Ok((paths.len(), failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_schedule_holds() {
        let (count, failed) = run_all().unwrap();
        assert!(count >= 30, "{count} cases");
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }

    #[test]
    fn a_schedule_that_does_not_hold_is_told_by_its_line() {
        let problem = run("at 0 acquire\nat 1 node 0 grant -> ours 9\nexpect won\n").unwrap_err();
        assert_eq!(problem, "line 3: expect won: it is pending");
        assert!(run("at 0 acquire\nat 1 node 0 grant -> hours\n").is_err());
        assert!(run("nodes three\n").is_err());
    }
}
