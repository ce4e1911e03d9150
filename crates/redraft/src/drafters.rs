//! Finding the drafter of a model among the files of this machine.

use redraft_drafter::{DrafterError, DrafterFile, TargetFingerprint, Warning};
use redraft_gguf::{Gguf, ModelConfig};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where drafters may lie, in the order in which they are looked at.
///
/// A candidate is a safetensors file whose name, or whose folder's, has "drafter" in it. It is the model's if it says so:
/// what it was trained for ([`TargetFingerprint`]) is compared with the model, and a candidate that does not say is none,
/// except beside the model under the model's own name. Within a place, candidates named after the model come first.
///
/// ```no_run
/// use redraft::{DrafterSearch, Engine, EngineOptions, FileSource, Gguf, ModelConfig};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::path::Path::new("SmolLM2-135M-Instruct.Q4_1.gguf");
/// let source = FileSource::open(path)?;
/// let gguf = Gguf::read(&source).await?;
/// let config = ModelConfig::from_gguf(&gguf)?;
/// let found = DrafterSearch::standard(path, None).find(&gguf, &config, &[], |warning| eprintln!("{warning}"));
/// let options = EngineOptions { drafter: found.map(|found| found.file), ..EngineOptions::default() };
/// let engine = Engine::load(&source, options, |_| {}).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrafterSearch {
    /// The model's file.
    model: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A drafter that was found, checked against the model.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundDrafter {
    /// Its file.
    pub path: PathBuf,
    /// What was read from it.
    pub file: DrafterFile,
    /// What is suspicious about the pair.
    pub warnings: Vec<Warning>,
}

/// Longest header of a safetensors file that is looked into, in bytes. Drafters have a few thousand.
const HEADER_LIMIT: u64 = 1 << 20;
/// Largest drafter in bytes: several times that of an 8B model in f32.
const FILE_LIMIT: u64 = 8 << 30;
/// What the name of a candidate, or of its folder, contains.
const WORD: &str = "drafter";
/// Names of folders, separated as in `PATH`, that are searched too.
const VARIABLE: &str = "REDRAFT_MODELS";
/// What a checkout of this project has.
const CHECKOUT: &str = "crates/redraft-drafter/Cargo.toml";

impl DrafterSearch {
    /// These folders, after the one of the model's file.
    #[must_use]
    pub fn new(model: Option<&Path>, folders: Vec<PathBuf>) -> Self {
        Self { model: model.map(Path::to_owned), folders }
    }

    /// The standard places: beside the model's file; the folders in `$REDRAFT_MODELS`; `drafters` in `cache`, the folder
    /// where redraft keeps what it fetches; `../share/redraft/models` seen from the running program; `models` in the
    /// current folder or the nearest one above that holds a checkout of redraft.
    #[must_use]
    pub fn standard(model: &Path, cache: Option<&Path>) -> Self {
        let named = std::env::var_os(VARIABLE);
        let mut folders: Vec<PathBuf> = named.iter().flat_map(std::env::split_paths).collect();
        folders.retain(|folder| !folder.as_os_str().is_empty());
        folders.extend(cache.map(|cache| cache.join("drafters")));
        let program = std::env::current_exe().ok().and_then(|program| fs::canonicalize(program).ok());
        let prefix = program.as_deref().and_then(Path::parent).and_then(Path::parent);
        folders.extend(prefix.map(|prefix| prefix.join("share").join("redraft").join("models")));
        folders.extend(std::env::current_dir().ok().and_then(|folder| checkout_models(&folder)));
        Self::new(Some(model), folders)
    }

    /// The drafter of this model: the first candidate that is for it and can be read. `names` are what the model is called
    /// besides the names in its file and of its file. `warn` hears of candidates that are damaged; they are passed over.
    pub fn find(
        &self,
        gguf: &Gguf,
        config: &ModelConfig,
        names: &[&str],
        mut warn: impl FnMut(String),
    ) -> Option<FoundDrafter> {
        let target = Target { gguf, config };
        for candidate in self.ordered(names, gguf) {
            match target.try_file(&candidate) {
                Ok(Some((file, warnings))) => {
                    return Some(FoundDrafter { path: candidate.path, file, warnings });
                }
                Ok(None) => {}
                Err(reason) => {
                    warn(format!("drafter {} is passed over: {reason}", candidate.path.display()));
                }
            }
        }
        None
    }

    /// Whether there is anything to look at; what is there may be of other models.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.candidates().is_empty()
    }

    /// All candidates: of each place in its order, by name.
    fn candidates(&self) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = Vec::new();
        let beside = self.model.as_deref().map(|model| model.parent().unwrap_or(Path::new("")));
        if let Some(own) = self.model.as_deref().map(|model| model.with_extension("drafter.safetensors"))
            && own.is_file()
        {
            all.push(Candidate { path: own, place: 0, own: true });
        }
        let here = beside.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        let places = here.into_iter().chain(self.folders.iter().map(PathBuf::as_path));
        for (place, folder) in places.enumerate() {
            for path in in_folder(folder) {
                // The same folder may be named twice.
                if !all.iter().any(|known| known.path == path) {
                    all.push(Candidate { path, place, own: false });
                }
            }
        }
        all
    }

    fn ordered(&self, names: &[&str], gguf: &Gguf) -> Vec<Candidate> {
        let stem = self.model.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy());
        let stated = gguf.metadata.str("general.name").ok().flatten();
        let names: Vec<String> =
            names.iter().copied().chain(stem.as_deref()).chain(stated).map(plain).collect();
        let mut all = self.candidates();
        // Stable: places and names keep their order otherwise.
        all.sort_by_key(|candidate| (candidate.place, !candidate.own, !candidate.is_named_after(&names)));
        all
    }
}

/// A file that may be the drafter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    path: PathBuf,
    /// Number of the place.
    place: usize,
    /// Whether it bears the name of the model's file.
    own: bool,
}

impl Candidate {
    /// Whether its name, or its folder's, begins like one of these, or the other way round.
    fn is_named_after(&self, names: &[String]) -> bool {
        let folder = self.path.parent().and_then(Path::file_name);
        [self.path.file_stem(), folder].into_iter().flatten().any(|own| {
            let own = plain(&own.to_string_lossy()).replace(WORD, "");
            !own.is_empty() && names.iter().any(|name| name.starts_with(&own) || own.starts_with(name))
        })
    }
}

/// A name without case and punctuation.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// `models` in the nearest folder from `start` upwards that is a checkout.
fn checkout_models(start: &Path) -> Option<PathBuf> {
    let mut folders = start.ancestors();
    folders.find(|folder| folder.join(CHECKOUT).is_file()).map(|folder| folder.join("models"))
}

/// The candidates of a place, by name: files, and those in folders below it. What cannot be listed has none.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let in_drafters = folder.file_name().is_some_and(|name| name == "drafters");
    let mut found = Vec::new();
    for path in entries(folder) {
        let named = in_drafters || has_word(&path);
        if is_weights(&path) {
            found.extend(named.then_some(path));
        } else if named && path.is_dir() {
            found.extend(entries(&path).into_iter().filter(|path| is_weights(path)));
        }
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn has_word(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains(WORD))
}

fn is_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors") && path.is_file()
}

/// The model, to compare candidates with.
struct Target<'a> {
    gguf: &'a Gguf,
    config: &'a ModelConfig,
}

impl Target<'_> {
    /// The drafter in a file if it is this model's; the error is what is wrong with the file.
    fn try_file(&self, candidate: &Candidate) -> Result<Option<(DrafterFile, Vec<Warning>)>, String> {
        let mut source = File::open(&candidate.path).map_err(|error| error.to_string())?;
        let size = source.metadata().map_err(|error| error.to_string())?.len();
        let stated = match header(&mut source, size).map_err(|error| error.to_string())? {
            Some(header) => TargetFingerprint::of_header(&header).map_err(|error| error.to_string())?,
            // No drafter has such a header.
            None => return Ok(None),
        };
        match stated {
            Some(stated) if self.check(&stated).is_err() => return Ok(None),
            None if !candidate.own => return Ok(None),
            _ => {}
        }
        if size > FILE_LIMIT {
            return Err(format!("it is larger than {} MiB", FILE_LIMIT >> 20));
        }
        let bytes = fs::read(&candidate.path).map_err(|error| error.to_string())?;
        let file = DrafterFile::read(&bytes).map_err(|error| error.to_string())?;
        let layers = file.config().captures(self.config.layers).map_err(|error| error.to_string())?;
        let found = self.fingerprint(layers).map_err(|error| error.to_string())?;
        let warnings = file.check_target(&found).map_err(|error| error.to_string())?;
        Ok(Some((file, warnings)))
    }

    fn check(&self, stated: &TargetFingerprint) -> Result<Vec<Warning>, DrafterError> {
        stated.check(&self.fingerprint(stated.capture_layers)?)
    }

    fn fingerprint(&self, layers: [u32; 3]) -> Result<TargetFingerprint, DrafterError> {
        TargetFingerprint::of(self.gguf, self.config, layers)
    }
}

/// The header of a safetensors file of `size` bytes; none if it is longer than any drafter's.
fn header(source: &mut File, size: u64) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    source.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > size.saturating_sub(8) {
        return Err(io::Error::other("it is cut short or no safetensors file"));
    }
    if length > HEADER_LIMIT {
        return Ok(None);
    }
    let mut header = Vec::new();
    source.take(length).read_to_end(&mut header)?;
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redraft_testing::{RoleTypes, TinyDrafter, TinyModel};

    struct Scene {
        folder: tempfile::TempDir,
        gguf: Gguf,
        config: ModelConfig,
    }

    fn parsed(model: &TinyModel) -> (Gguf, ModelConfig) {
        let bytes = model.to_gguf().unwrap();
        let gguf = pollster::block_on(Gguf::read(&bytes)).unwrap();
        let config = ModelConfig::from_gguf(&gguf).unwrap();
        (gguf, config)
    }

    impl Scene {
        fn new() -> Self {
            let (gguf, config) = parsed(&TinyModel::default());
            Self { folder: tempfile::tempdir().unwrap(), gguf, config }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        }

        fn drafter(&self, name: &str, drafter: &TinyDrafter) -> PathBuf {
            self.write(name, &drafter.to_file().unwrap().write())
        }

        /// What is found, and what was warned of.
        fn find(&self, folders: &[&str]) -> (Option<PathBuf>, Vec<String>) {
            let model = self.path("model/tiny.gguf");
            let folders = folders.iter().map(|folder| self.path(folder)).collect();
            let mut warnings = Vec::new();
            let search = DrafterSearch::new(Some(&model), folders);
            let found = search.find(&self.gguf, &self.config, &["nick"], |warning| warnings.push(warning));
            assert!(search.any() || found.is_none());
            (found.map(|found| found.path), warnings)
        }
    }

    #[test]
    fn places_are_searched_in_their_order() {
        let scene = Scene::new();
        let any = TinyDrafter::default();
        assert_eq!(scene.find(&["a", "b"]), (None, Vec::new()), "nowhere");
        let mut expected = Vec::new();
        for name in [
            "b/x-drafter/model.safetensors",
            "a/drafter.safetensors",
            "model/z-drafter.safetensors",
            "model/tiny.drafter.safetensors",
        ] {
            expected.push(scene.drafter(name, &any));
            assert_eq!(scene.find(&["a", "b"]), (expected.last().cloned(), Vec::new()));
        }
        // The model's own folder named again changes nothing.
        assert_eq!(scene.find(&["b", "model"]).0, expected.last().cloned());
    }

    #[test]
    fn the_fingerprint_decides_and_names_are_hints() {
        let scene = Scene::new();
        let other =
            TinyDrafter { target: TinyModel { layers: 3, ..TinyModel::default() }, ..TinyDrafter::default() };
        scene.drafter("a/tiny-drafter/model.safetensors", &other);
        scene.drafter(
            "a/unknown-drafter.safetensors",
            &TinyDrafter { fingerprint: false, ..TinyDrafter::default() },
        );
        assert_eq!(scene.find(&["a"]), (None, Vec::new()), "of another model, and of who knows which");
        let plain = scene.drafter("a/a-drafter.safetensors", &TinyDrafter::default());
        assert_eq!(scene.find(&["a"]).0, Some(plain));
        let by_file = scene.drafter("a/y/drafter.safetensors", &TinyDrafter::default());
        assert_ne!(scene.find(&["a"]).0, Some(by_file), "its folder does not say drafter");
        for name in ["a/tiny-drafter.safetensors", "a/nick-v2-drafter/weights.safetensors"] {
            let named = scene.drafter(name, &TinyDrafter::default());
            assert_eq!(scene.find(&["a"]).0, Some(named.clone()), "{name}");
            fs::remove_file(named).unwrap();
        }
    }

    #[test]
    fn beside_the_model_its_own_name_is_enough() {
        let scene = Scene::new();
        let unknown = TinyDrafter { fingerprint: false, ..TinyDrafter::default() };
        let own = scene.drafter("model/tiny.drafter.safetensors", &unknown);
        let model = scene.path("model/tiny.gguf");
        let search = DrafterSearch::new(Some(&model), Vec::new());
        let found = search.find(&scene.gguf, &scene.config, &[], |warning| panic!("{warning}")).unwrap();
        assert_eq!((found.path, found.warnings), (own, vec![Warning::NoFingerprint]));
        assert_eq!(found.file, unknown.to_file().unwrap());
        // One that does not fit is passed over, as one that is damaged.
        let (gguf, config) = parsed(&TinyModel { vocab: 352, ..TinyModel::default() });
        let mut warnings = Vec::new();
        assert!(search.find(&gguf, &config, &[], |warning| warnings.push(warning)).is_none());
        assert!(warnings[0].contains("vocab"), "{warnings:?}");
    }

    #[test]
    fn another_quantisation_is_taken_with_a_warning() {
        let scene = Scene::new();
        scene.drafter("a/drafter.safetensors", &TinyDrafter::default());
        let q8 = TinyModel { types: RoleTypes::all(redraft_gguf::GgmlType::Q8_0), ..TinyModel::default() };
        let (gguf, config) = parsed(&q8);
        let search = DrafterSearch::new(None, vec![scene.path("a")]);
        let found = search.find(&gguf, &config, &[], |warning| panic!("{warning}")).unwrap();
        assert!(matches!(found.warnings[..], [Warning::Quantization { .. }]), "{:?}", found.warnings);
    }

    #[test]
    fn broken_candidates_are_told_and_passed_over() {
        let scene = Scene::new();
        let good = TinyDrafter::default().to_file().unwrap().write();
        let cut = &good[..good.len() - 1];
        let mut nan = good.clone();
        let end = nan.len();
        nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        scene.write("a/drafter-1.safetensors", b"short");
        scene.write("a/drafter-2.safetensors", &u64::MAX.to_le_bytes());
        scene.write("a/drafter-3.safetensors", b"\x02\0\0\0\0\0\0\0[]");
        scene.write("a/drafter-4.safetensors", cut);
        scene.write("a/drafter-5.safetensors", &nan);
        // Weights that are no drafter's are nobody's fault.
        scene.write("a/drafter-6.safetensors", b"\x02\0\0\0\0\0\0\0{}");
        let (found, warnings) = scene.find(&["a"]);
        assert_eq!(found, None);
        assert_eq!(warnings.len(), 5, "{warnings:#?}");
        for (number, warning) in (1..).zip(&warnings) {
            assert!(warning.contains(&format!("drafter-{number}.safetensors")), "{warning}");
        }
        let last = scene.write("a/drafter-7.safetensors", &good);
        assert_eq!(scene.find(&["a"]).0, Some(last));
    }

    #[test]
    fn a_checkout_is_found_from_below() {
        let scene = Scene::new();
        scene.write("top/crates/redraft-drafter/Cargo.toml", b"");
        scene.write("top/crates/x/y/z", b"");
        let expected = Some(scene.path("top/models"));
        for below in ["top", "top/crates/x/y"] {
            assert_eq!(checkout_models(&scene.path(below)), expected, "{below}");
        }
        assert_ne!(checkout_models(scene.folder.path()), expected);
    }
}
