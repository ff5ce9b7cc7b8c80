//! A store in memory that can block, fail or be altered.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// Writes block.
    Shut,
    Broken,
}

#[derive(Debug)]
pub struct Gated {
    objects: InMemory,
    gate: watch::Sender<Gate>,
    waiting: AtomicUsize,
    read: Mutex<usize>,
}

impl Default for Gated {
    fn default() -> Self {
        Self {
            objects: InMemory::new(),
            gate: watch::channel(Gate::Open).0,
            waiting: AtomicUsize::new(0),
            read: Mutex::new(0),
        }
    }
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a store of a test")
    }
}

impl Gated {
    pub fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Counts the checkpoint files read.
    pub fn read(&self) -> usize {
        *self.read.lock().expect("unpoisoned")
    }

    pub fn paths(&self) -> Vec<String> {
        let listed = self.objects.list(None).try_collect::<Vec<_>>();
        let listed = futures::executor::block_on(listed).expect("listed");
        let mut paths: Vec<_> = listed.iter().map(|it| it.location.to_string()).collect();
        paths.sort();
        paths
    }

    fn ending(&self, end: &str) -> Vec<Path> {
        let paths = self.paths().into_iter().filter(|path| path.ends_with(end));
        paths.map(Path::from).collect()
    }

    pub fn remove(&self, end: &str) {
        for path in self.ending(end) {
            futures::executor::block_on(self.objects.delete(&path)).expect("removed");
        }
    }

    pub fn alter(&self, end: &str) {
        for path in self.ending(end) {
            let altered = async {
                let read = self.objects.get(&path).await?.bytes().await?;
                let mut bytes = read.to_vec();
                bytes[0] ^= 1;
                self.objects.put(&path, bytes.into()).await
            };
            futures::executor::block_on(altered).expect("altered");
        }
    }

    async fn pass(&self, writes: bool) -> Result<()> {
        let mut gate = self.gate.subscribe();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let passed = gate
            .wait_for(|gate| *gate != Gate::Shut || !writes)
            .await
            .map(|gate| *gate);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match passed {
            Ok(Gate::Broken) | Err(_) => Err(object_store::Error::Generic {
                store: "a test",
                source: "it is broken".into(),
            }),
            Ok(_) => Ok(()),
        }
    }
}

#[async_trait::async_trait]
impl ObjectStore for Gated {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.pass(true).await?;
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.pass(true).await?;
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass(false).await?;
        if !options.head && location.as_ref().contains("/files/") {
            *self.read.lock().expect("unpoisoned") += 1;
        }
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(false).await?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
