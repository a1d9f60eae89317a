//! The command line: its commands and options. Owns their words; `checks` owns what is wrong with
//! one.
#![allow(clippy::doc_markdown, reason = "the comments are the help that terminals show")]

mod checks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[cfg(target_os = "linux")]
pub(crate) use self::checks::is_under_npx;
pub(crate) use self::checks::parse;
use self::checks::{duration, name, patience, prefix, seconds, word};

/// Locks over independent Redis or Valkey servers: run a command under one, see who holds one, and
/// which server is not fit.
#[derive(Parser)]
#[command(name = "quorlock", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(infer_long_args = false)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// The nodes, as in redis://a:6379,rediss://user:password@b; may be repeated. Without it, the
    /// environment variable QUORLOCK_NODES counts. Others can read it in `ps`: keep passwords in a
    /// file or the environment.
    #[arg(long, global = true, value_name = "URL[,URL...]")]
    pub(crate) nodes: Vec<String>,
    /// A file with nodes, besides those of --nodes, separated by commas or line ends; a # at the beginning of a word begins a comment.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// What every key on the nodes begins with.
    #[arg(long, global = true, value_name = "PREFIX", value_parser = prefix)]
    pub(crate) user_prefix: Option<String>,
    /// How long nodes that do not answer are waited for, in all.
    #[arg(long, global = true, value_name = "DURATION", default_value = "2s", value_parser = patience, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    /// Print JSON. Not with run: its output is the command's.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print nothing that the exit code tells.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// No colours; the environment variable NO_COLOR does the same.
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    Release(Release),
    Extend(Extend),
    Verify(Verify),
    Nodes(Nodes),
    /// Tell what is wrong with the nodes, and what to do.
    ///
    /// Exits with 0 if nothing is, 1 if locks can be had although something should be mended, and 2
    /// if a lock cannot be had now, or is not safe.
    #[command(after_help = "\
Examples:
  quorlock doctor
  quorlock doctor --json | jq -r '.findings[].problem'
")]
    Doctor,
    Bench(Bench),
    /// Print the completions of a shell, such as for /etc/bash_completion.d/quorlock.
    #[command(after_help = "\
Examples:
  source <(quorlock completions bash)
  quorlock completions fish > ~/.config/fish/completions/quorlock.fish
")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page.
    #[command(after_help = "\
Example:
  quorlock man | man -l -
")]
    Man,
}

/// A shell that completes words.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Run a command while holding a lock.
///
/// Waits until the lock is held, renews it while the command runs, and releases it when the command
/// and all processes of its group have ended. On Linux it also waits for processes in other groups, as
/// under timeout or with the job control of a shell; not for those with a session of their own (setsid).
/// Exits as the command does, with 128 + the signal that ended it, 75 if another holds the lock, 69
/// without a quorum, 76 if the lock was lost while the command ran, 127 or 126 if it cannot be found or
/// executed (127 also if its interpreter is missing), and 64 for a wrong command line.
///
/// Prints nothing unless something goes wrong. The command finds QUORLOCK_RESOURCE,
/// QUORLOCK_FENCING_TOKEN, QUORLOCK_TOKEN, QUORLOCK_SEQUENCER and QUORLOCK_TTL_MS in its
/// environment. If the lock is lost, the command's group gets SIGTERM, and SIGKILL after --grace.
/// Of the signals that `run` gets, SIGTERM, SIGINT, SIGQUIT and SIGHUP go on to the command's group, and
/// SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH and real-time signals to the command alone. On Linux, processes in
/// other groups get the signals that the group got once it has ended; after a loss they have the grace again. A
/// command that becomes another user, as by sudo, cannot be signalled and goes on: run the lock as that
/// user, too, as in `sudo quorlock run --nodes-file FILE NAME -- CMD`.
#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// How long the nodes keep the lock after the last renewal.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// How long to try, while another holds the lock or too few nodes answer. Without it, until the lock is held; while too
    /// few nodes answer, no longer than --timeout once they have been connected, which may take as long.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Give up at once if another holds the lock.
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Get the lock in the order of arrival among commands with --fair; for one name.
    #[arg(long)]
    pub(crate) fair: bool,
    /// The longest time for which the lock is renewed.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) max_hold: Duration,
    /// How long the lock is kept from others at least, however soon the command ends.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) min_hold: Duration,
    /// How much longer a lock is kept from others that was lost instead of released.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) lock_delay: Duration,
    /// What others are told of who holds the lock, as in service=billing; may be repeated. A word
    /// alone is the service. Host and process id are added; 4 KiB at most in all.
    #[arg(long, value_name = "NAME=VALUE", value_parser = word)]
    pub(crate) owner: Vec<(String, String)>,
    /// How long the command has to end after SIGTERM, once the lock is lost.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) grace: Duration,
    /// Tell on standard error what happens to the lock and the nodes.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// What to lock: all of the names, or none. One that begins with '-' needs a '--' before it, as in: run -- -x -- CMD.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) names: Vec<String>,
    /// The command, and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Show who holds a lock, and what each node says of it.
///
/// Exits with 0 if all of them are free, 1 if one is held, and 69 if too few nodes answer to tell.
///
/// The fencing token is shown where the holder has recorded it, as `run` does: servers do not tell who
/// has which.
#[derive(Args)]
#[command(after_help = "\
Examples:
  quorlock status invoice:42
  quorlock status --json nightly-report backup | jq .
")]
pub(crate) struct Status {
    /// The names of the locks. Programs can lock names with control characters, too, but
    /// those cannot be asked about.
    #[arg(value_name = "NAME", value_parser = name, required = true)]
    pub(crate) names: Vec<String>,
}

/// Give a lock back.
///
/// Exits with 0 if it was released, 1 if it was not held, 3 if another holds it, and 69 if too few
/// nodes answer to tell; the outcome is "unknown" then in --json. With --force, it tells on which nodes
/// it has deleted a key, and on which it could not, and why; it takes the keys that it finds, also those of
/// a client that has taken the lock since you looked. If it could delete none of them, it exits with 3, or
/// with 69 where it is not known whether they are there.
#[derive(Args)]
#[command(after_help = "\
Examples:
  quorlock release invoice:42 --token $QUORLOCK_TOKEN
  quorlock release invoice:42 --force --yes      also if another process holds it: its work may go on
")]
pub(crate) struct Release {
    /// The name of the lock.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// The holder's token: QUORLOCK_TOKEN of a command under `run`, or what the program logs.
    #[arg(long, value_name = "TOKEN", conflicts_with = "force")]
    pub(crate) token: Option<String>,
    /// Take it from its holder, and say who that was; needs --yes.
    #[arg(long)]
    pub(crate) force: bool,
    /// Confirm --force: the holder's work goes on, and another's may overlap it.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Extend a lock that another program holds, such as one that hands its work over.
///
/// Exits with 0 if it was extended, 1 if it was not held, 3 if another holds it, and 69 if too few
/// nodes answer, or their answers do not count, as where the user lacks rights on the guards' keys: the
/// outcome is "unknown" then in --json, and the keys may have been extended. A longer time that is
/// left stays, here and at the renewals of a holder that goes on.
#[derive(Args)]
#[command(after_help = "\
Example:
  quorlock extend invoice:42 --token $QUORLOCK_TOKEN --ttl 10m
")]
pub(crate) struct Extend {
    /// The name of the lock.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// The holder's token: QUORLOCK_TOKEN of a command under `run`, or what the program logs.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// How long the nodes keep the lock from now on, at least: a longer time that is left stays, since the holder goes by it.
    /// While the holder renews the lock, give its own ttl or more: a renewal at the same moment could be cut short.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
}

/// Tell whether a lease of `run` is still the one that is held.
///
/// Takes what `run` gives its command in QUORLOCK_SEQUENCER. Exits with 0 if a quorum holds that
/// lease, with that fencing token, 1 if not, and 69 if too few nodes answer to tell; "current" is null
/// then in --json.
#[derive(Args)]
#[command(after_help = "\
Example:
  quorlock verify \"$QUORLOCK_SEQUENCER\" && publish
")]
pub(crate) struct Verify {
    /// As in invoice:42@1764000000000000.
    #[arg(value_name = "NAME@TOKEN")]
    pub(crate) sequencer: String,
}

/// Show what each node is: its server, data, clock, and what the user may not do.
#[derive(Args)]
#[command(after_help = "\
Examples:
  quorlock nodes
  quorlock nodes --watch
  quorlock nodes --json | jq -r '.[] | select(.state != \"healthy\") | .node'
")]
pub(crate) struct Nodes {
    /// Show it anew every two seconds, until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Take a quick look at the speed of your nodes, next to plain PING.
///
/// Acquires and releases locks that nobody else uses: one at a time, and 16 in flight. It does each
/// piece of work at least once, so that it takes longer than --seconds and --timeout where nodes are far away.
#[derive(Args)]
#[command(after_help = "\
Examples:
  quorlock bench
  quorlock bench --seconds 10 --json
")]
pub(crate) struct Bench {
    /// How long to measure in all.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: f64,
}

const EXAMPLES: &str = "\
Examples:
  export QUORLOCK_NODES=redis://a:6379,redis://b:6379,redis://c:6379
  quorlock run nightly-report -- ./report.sh       wait for the lock, hold it, release it
  quorlock run --try backup -- restic backup /srv  exit 75 at once if another holds it
  quorlock status nightly-report                   who holds it
  quorlock doctor                                  which node is not fit, and what to do
";

const RUN_EXAMPLES: &str = "\
Examples:
  quorlock run nightly-report -- ./report.sh
  quorlock run --try backup -- restic backup /srv       exit 75 at once if another holds it
  quorlock run --wait 30s --ttl 20s deploy web -- make deploy
  quorlock run --owner billing --owner ticket=812 stock -- ./count    others see who holds it
  0 3 * * *  quorlock run -q --nodes-file /etc/quorlock-nodes --try --min-hold 5m nightly -- report
                                                        one of several machines, by cron
  quorlock run stock -- sh -c 'psql -v token=$QUORLOCK_FENCING_TOKEN -f update.sql'
";
