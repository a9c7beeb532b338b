//! Compiled components on disk.
//!
//! An entry is named by the sha256 of the component and by what the engine's code depends on, so a changed component, a
//! new version of wasmtime or another machine is another entry. It starts with a digest of its own content: what is cut
//! short, damaged or cannot be read is compiled anew and replaced. Entries appear whole, by rename.
//!
//! The cache never fails a job: without it, work is done again, and the log says why.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, Result};
use xxhash_rust::xxh3::Xxh3;

use super::precompiled;

/// What an entry starts with. The number is that of the format.
const MAGIC: &[u8; 16] = b"tidegate-cwasm\x00\x01";

/// Bytes in a sha256.
const DIGEST: usize = 32;

/// How many names for a file in the making are tried.
const TEMPORARY_NAMES: u32 = 100;

/// A directory of compiled components for one engine.
#[derive(Debug)]
pub(super) struct CompileCache {
    directory: PathBuf,
    /// What compiled code depends on besides the component.
    engine: Engine,
    compatibility: u64,
}

impl CompileCache {
    pub(super) fn new(directory: PathBuf, engine: &Engine) -> Self {
        let mut hasher = Xxh3::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self { directory, engine: engine.clone(), compatibility: hasher.finish() }
    }

    /// The component of these bytes from the cache, or what `compile` makes of them, which is then kept.
    pub(super) fn load_or(&self, bytes: &[u8], compile: impl FnOnce() -> Result<Component>) -> Result<Component> {
        let path = self.entry(bytes);
        match self.read(&path) {
            Ok(Some(component)) => return Ok(component),
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "compiling anew: the cached component cannot be used");
            }
        }
        let component = compile()?;
        if let Err(error) = component.serialize().map_err(io::Error::other).and_then(|code| self.write(&path, &code)) {
            tracing::warn!(path = %path.display(), %error, "the compiled component is not cached");
        }
        Ok(component)
    }

    fn entry(&self, bytes: &[u8]) -> PathBuf {
        let digest = hex(&Sha256::digest(bytes));
        self.directory.join(format!("{digest}-{:016x}.cwasm", self.compatibility))
    }

    /// An entry that is there and sound, or why it is not.
    fn read(&self, path: &Path) -> std::result::Result<Option<Component>, String> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        for (what, metadata) in [("file", file.metadata()), ("directory", fs::metadata(&self.directory))] {
            if others_may_write(&metadata.map_err(|error| error.to_string())?) {
                return Err(format!("others than its owner may write to the {what}"));
            }
        }
        let mut entry = Vec::new();
        file.read_to_end(&mut entry).map_err(|error| error.to_string())?;
        let code = entry.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(DIGEST));
        let Some((digest, code)) = code else { return Err("it is not a compiled component".to_owned()) };
        if *Sha256::digest(code) != *digest {
            return Err("its content does not have the digest that it should have".to_owned());
        }
        precompiled::load(&self.engine, code).map(Some).map_err(|error| format!("{error:#}"))
    }

    fn write(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        create_private_directory(&self.directory)?;
        if others_may_write(&fs::metadata(&self.directory)?) {
            return Err(io::Error::other("others than its owner may write to the directory"));
        }
        let (temporary, mut file) = self.create_temporary(path)?;
        let written = file
            .write_all(MAGIC)
            .and_then(|()| file.write_all(&Sha256::digest(code)))
            .and_then(|()| file.write_all(code))
            // A half-written entry would be noticed; one that replaces a whole one and then loses its content in a
            // power cut, as well. So there is no need to sync.
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // What cannot be written cannot always be removed either, and the first error says more.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// A new file beside the entry. Several processes and engines may be at it.
    fn create_temporary(&self, path: &Path) -> io::Result<(PathBuf, File)> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        for number in 0..TEMPORARY_NAMES {
            let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
            match options.open(&temporary) {
                Ok(file) => return Ok((temporary, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many files that were never finished"))
    }
}

fn create_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(unix)]
fn others_may_write(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0
}

#[cfg(not(unix))]
fn others_may_write(_: &fs::Metadata) -> bool {
    false
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes what it is given");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The smallest component there is.
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    struct Fixture {
        folder: tempfile::TempDir,
        engine: Engine,
        compiled: Cell<u32>,
    }

    impl Fixture {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), engine: Engine::default(), compiled: Cell::new(0) }
        }

        fn cache(&self) -> CompileCache {
            CompileCache::new(self.folder.path().join("cache"), &self.engine)
        }

        /// Loads the component and tells how often it was compiled so far.
        fn load(&self) -> u32 {
            let compile = || {
                self.compiled.set(self.compiled.get() + 1);
                Component::from_binary(&self.engine, COMPONENT)
            };
            self.cache().load_or(COMPONENT, compile).unwrap();
            self.compiled.get()
        }

        fn entry(&self) -> PathBuf {
            self.cache().entry(COMPONENT)
        }
    }

    #[test]
    fn a_component_is_compiled_once() {
        let fixture = Fixture::new();
        assert_eq!([fixture.load(), fixture.load(), fixture.load()], [1, 1, 1]);
        let names: Vec<_> = fs::read_dir(fixture.folder.path().join("cache")).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays: {names:?}");
    }

    #[test]
    fn a_damaged_entry_is_replaced() {
        let fixture = Fixture::new();
        fixture.load();
        let whole = fs::read(fixture.entry()).unwrap();
        let (mut flipped, mut alien) = (whole.clone(), whole.clone());
        *flipped.last_mut().unwrap() ^= 1;
        alien[0] ^= 1;
        let damages = [Vec::new(), whole[..20].to_vec(), whole[..whole.len() - 1].to_vec(), flipped, alien];
        for (compiled, damage) in (2..).zip(damages) {
            fs::write(fixture.entry(), damage).unwrap();
            assert_eq!([fixture.load(), fixture.load()], [compiled, compiled]);
            assert!(fs::read(fixture.entry()).unwrap() == whole);
        }
    }

    #[test]
    fn a_sound_entry_that_is_no_code_is_replaced() {
        let fixture = Fixture::new();
        fixture.load();
        fixture.cache().write(&fixture.entry(), b"no code").unwrap();
        assert_eq!([fixture.load(), fixture.load()], [2, 2]);
    }

    #[test]
    fn a_cache_that_cannot_be_used_fails_nothing() {
        let fixture = Fixture::new();
        fs::write(fixture.folder.path().join("cache"), "a file in the way").unwrap();
        assert_eq!([fixture.load(), fixture.load()], [1, 2]);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_write() {
        use std::os::unix::fs::PermissionsExt;
        let fixture = Fixture::new();
        fixture.load();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = fixture.folder.path().join("cache");
        assert_eq!((mode(&directory), mode(&fixture.entry())), (0o700, 0o600));
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!([fixture.load(), fixture.load()], [2, 3]);
    }
}
