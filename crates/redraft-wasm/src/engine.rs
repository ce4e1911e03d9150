//! Loading, answering, checking.

use crate::error::{Code, of_library, thrown};
use crate::report::{AnswerReport, EngineReport, TokenReport};
use crate::request::{AnswerRequest, LoadRequest, PathName, Prompt};
use crate::source::JsSource;
use js_sys::{Function, Promise};
use redraft::{
    AdapterChoice, CancelToken, CheckProgress, DrafterFile, Engine, EngineOptions, Error, GenerateOptions,
    Phase, Progress, TokenId, check_adapter_on,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::{JsFuture, spawn_local};

/// A model on the browser's GPU. One call at a time: a second one while the first runs throws.
#[wasm_bindgen]
#[derive(Debug)]
pub struct WasmEngine {
    engine: Engine,
}

/// Loads the GGUF file of `size` bytes that `read`, `(offset, length) => Promise<Uint8Array>`, reads.
///
/// `options` is a `LoadRequest` in JSON, `drafter` the contents of a drafter's file, `progress` is called with
/// `("kernels" | "weights", done, total)`. When `aborted` settles, what was allocated is freed and the call throws.
///
/// # Errors
/// An `Error` with a code.
#[wasm_bindgen(js_name = loadEngine)]
pub async fn load_engine(
    size: f64,
    read: Function,
    options: String,
    drafter: Option<Vec<u8>>,
    progress: Function,
    aborted: Promise,
) -> Result<WasmEngine, JsValue> {
    let request: LoadRequest = parse(&options)?;
    let source = JsSource::new(size, read).ok_or_else(|| {
        thrown(Code::Request, "the size of the model's file must be a whole number of bytes")
    })?;
    let drafter = match drafter {
        Some(bytes) => Some(
            DrafterFile::read(&bytes).map_err(|error| thrown(Code::Drafter, &format!("drafter: {error}")))?,
        ),
        None => None,
    };
    let options = EngineOptions {
        context: request.context,
        kv: request.kv.map(Into::into).unwrap_or_default(),
        precision: request.precision.map(Into::into).unwrap_or_default(),
        path: request.path.map(Into::into),
        memory_limit: request.memory_limit,
        max_binding: request.max_binding,
        drafter,
        ..EngineOptions::default()
    };
    let tell = |now: Progress| {
        let phase = match now.phase {
            Phase::Kernels => "kernels",
            Phase::Weights => "weights",
        };
        #[expect(clippy::cast_precision_loss, reason = "bytes of a file")]
        let (done, total) = (now.done as f64, now.total as f64);
        // What a listener throws is its own affair.
        let _ = progress.call3(&JsValue::NULL, &phase.into(), &done.into(), &total.into());
    };
    match unless(aborted, Engine::load(&source, options, tell)).await {
        Some(loaded) => Ok(WasmEngine { engine: loaded.map_err(|error| of_library(&error))? }),
        None => Err(thrown(Code::Aborted, "loading was aborted")),
    }
}

#[wasm_bindgen]
impl WasmEngine {
    /// What was loaded, as JSON.
    ///
    /// # Errors
    /// None in practice.
    pub fn info(&self) -> Result<String, JsValue> {
        json(&EngineReport::from(&self.engine))
    }

    /// Throws the first fault that the device reported, if there was one.
    ///
    /// # Errors
    /// An `Error` with a code.
    pub fn healthy(&self) -> Result<(), JsValue> {
        self.engine.healthy().map_err(|error| of_library(&error))
    }

    /// Takes costs that `info` told earlier, on this adapter with these files, so that they need not be measured again.
    ///
    /// # Errors
    /// An `Error` with a code if they are no costs that could have been measured; nothing is changed then.
    #[wasm_bindgen(js_name = setCosts)]
    pub fn set_costs(&mut self, json: &str) -> Result<(), JsValue> {
        let drafts = self.engine.has_drafter();
        let costs = crate::costs::read(json, drafts)
            .map_err(|reason| thrown(Code::Request, &format!("costs of speculation: {reason}")))?;
        self.engine.set_costs(&costs).map_err(|error| of_library(&error))
    }

    /// Tokens of a text; special tokens in it are recognised.
    ///
    /// # Errors
    /// An `Error` with a code.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, JsValue> {
        let ids = self.engine.encode(text).map_err(|error| of_library(&error))?;
        Ok(ids.iter().map(|id| id.0).collect())
    }

    /// Answers. `request` is an `AnswerRequest` in JSON; each token is handed to `on_token` as JSON, and the whole answer is
    /// what the promise gives. When `aborted` settles, the answer ends at the next token, or the prompt at its next chunk.
    ///
    /// # Errors
    /// An `Error` with a code.
    pub async fn answer(
        &mut self,
        request: String,
        on_token: Function,
        aborted: Promise,
    ) -> Result<String, JsValue> {
        let request: AnswerRequest = parse(&request)?;
        let cancel = CancelToken::default();
        let (token, aborted) = (cancel.clone(), JsFuture::from(aborted));
        spawn_local(async move {
            let _ = aborted.await;
            token.cancel();
        });
        let failed = |error: Error| of_library(&error);
        let prompt = match &request.prompt {
            Prompt::Messages(messages) => self.engine.encode_chat(messages).map_err(failed)?,
            Prompt::Text(text) => self.engine.encode(text).map_err(failed)?,
            Prompt::Tokens(ids) => ids.iter().copied().map(TokenId).collect(),
        };
        let options = GenerateOptions {
            max_tokens: request.max_tokens.unwrap_or(u32::MAX),
            sampling: request.sampling.params(),
            stop: request.stop,
            log_probs: request.log_probs,
            cancel,
            ignore_eos: request.ignore_eos,
            speculation: request.speculation.speculation(),
            trace: request.trace,
            ..GenerateOptions::default()
        };
        let mut stream = self.engine.generate(&prompt, options).map_err(failed)?;
        while let Some(step) = stream.next().await.map_err(failed)? {
            let report = json(&TokenReport::new(step, stream.engine()))?;
            on_token.call1(&JsValue::NULL, &report.into())?;
        }
        json(&AnswerReport::from(stream.finish()))
    }
}

/// Whether a kernel family computes right on this adapter: every weight format, and a small built-in model. Gives an empty
/// text, or what was wrong.
///
/// # Errors
/// An `Error` with a code when the adapter cannot be opened or the device is lost.
#[wasm_bindgen(js_name = checkPath)]
pub async fn check_path(path: String, progress: Function) -> Result<String, JsValue> {
    let path: PathName = parse(&format!("\"{path}\""))?;
    let tell = |now: &CheckProgress| {
        #[expect(clippy::cast_precision_loss, reason = "a count of checks")]
        let share = now.done as f64 / now.total.max(1) as f64;
        let _ = progress.call1(&JsValue::NULL, &share.into());
    };
    let report = check_adapter_on(&AdapterChoice::Auto, path.into(), tell).await;
    let report = report.map_err(|error| of_library(&error))?;
    let wrong = report.items.iter().filter(|item| item.outcome != redraft::Outcome::Pass);
    Ok(wrong.map(|item| format!("{}: {:?}", item.kernel, item.outcome)).collect::<Vec<_>>().join("; "))
}

/// What `work` gives, or nothing if `aborted` settles first: `work` is dropped then.
async fn unless<T>(aborted: Promise, work: impl Future<Output = T>) -> Option<T> {
    let (mut aborted, mut work) = (pin!(JsFuture::from(aborted)), pin!(work));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => aborted.as_mut().poll(context).map(|_| None),
    })
    .await
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, JsValue> {
    serde_json::from_str(text)
        .map_err(|error| thrown(Code::Request, &format!("the request is not understood: {error}")))
}

fn json(value: &impl Serialize) -> Result<String, JsValue> {
    serde_json::to_string(value).map_err(|error| thrown(Code::Internal, &error.to_string()))
}
