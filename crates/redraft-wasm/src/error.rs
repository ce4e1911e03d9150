//! Errors as JavaScript sees them: an `Error` whose `code` says what kind it is.

use redraft::{Error, GpuError, ModelError};
use wasm_bindgen::{JsCast as _, JsValue};

/// Kinds of errors. `web/package/src/errors.ts` has the same list and adds what only JavaScript can run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// No adapter, or one that redraft cannot use.
    WebGpu,
    /// The device is gone; the model has to be loaded again.
    DeviceLost,
    /// Not enough memory on the device, or a limit on it.
    OutOfMemory,
    /// The model's file is damaged, or of a kind that is not supported.
    Model,
    /// The drafter's file is damaged, or made for another model.
    Drafter,
    /// A request that asks for what cannot be.
    Request,
    /// The prompt does not fit the context.
    ContextLength,
    /// It was aborted.
    Aborted,
    /// Something that should not happen.
    Internal,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::WebGpu => "webgpu_unavailable",
            Self::DeviceLost => "device_lost",
            Self::OutOfMemory => "out_of_memory",
            Self::Model => "invalid_model",
            Self::Drafter => "invalid_drafter",
            Self::Request => "invalid_request",
            Self::ContextLength => "context_length_exceeded",
            Self::Aborted => "aborted",
            Self::Internal => "internal",
        }
    }

    /// The kind of an error of the library.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Gpu(error) => Self::of_gpu(error),
            Error::Model(error) => Self::of_model(error),
            Error::File(_) | Error::Tokenizer(_) | Error::Vocabulary { .. } => Self::Model,
            Error::Drafter(_) => Self::Drafter,
            Error::PromptTooLong { .. } => Self::ContextLength,
            Error::Template(_)
            | Error::Sampling(_)
            | Error::Stop(_)
            | Error::NoTemplate
            | Error::EmptyPrompt
            | Error::Token { .. }
            | Error::Policy(_)
            | Error::Costs(_) => Self::Request,
            Error::Cancelled => Self::Aborted,
            _ => Self::Internal,
        }
    }

    fn of_model(error: &ModelError) -> Self {
        match error {
            ModelError::Gpu(error) => Self::of_gpu(error),
            ModelError::Memory { .. } => Self::OutOfMemory,
            ModelError::Drafter(_) | ModelError::DrafterShape { .. } | ModelError::DrafterCaptures { .. } => {
                Self::Drafter
            }
            ModelError::Sampling(_)
            | ModelError::NoDrafter
            | ModelError::NoGains
            | ModelError::Plan(_)
            | ModelError::Batch { .. } => Self::Request,
            ModelError::File(_)
            | ModelError::Read { .. }
            | ModelError::Pack { .. }
            | ModelError::Shape { .. }
            | ModelError::NotFinite { .. } => Self::Model,
            _ => Self::Internal,
        }
    }

    fn of_gpu(error: &GpuError) -> Self {
        match error {
            GpuError::NoAdapter { .. }
            | GpuError::Unusable { .. }
            | GpuError::NoF16 { .. }
            | GpuError::Open { .. } => Self::WebGpu,
            GpuError::DeviceLost { .. } => Self::DeviceLost,
            GpuError::OutOfMemory { .. } | GpuError::TooLarge { .. } => Self::OutOfMemory,
            _ => Self::Internal,
        }
    }
}

/// A JavaScript `Error` with a code.
pub(crate) fn thrown(code: Code, message: &str) -> JsValue {
    let error = js_sys::Error::new(message);
    // Setting a property of an object that we just made cannot fail.
    let _ = js_sys::Reflect::set(&error, &"code".into(), &code.name().into());
    error.into()
}

/// An error of the library, thrown.
pub(crate) fn of_library(error: &Error) -> JsValue {
    thrown(Code::of(error), &error.to_string())
}

/// What a thrown value says.
pub(crate) fn message_of(value: &JsValue) -> String {
    match value.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => value.as_string().unwrap_or_else(|| format!("{value:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors() {
        let lost = || GpuError::DeviceLost { reason: "reset".to_owned() };
        assert_eq!(Code::of(&Error::Gpu(lost())), Code::DeviceLost, "of the GPU layer");
        assert_eq!(Code::of(&Error::Model(lost().into())), Code::DeviceLost, "inside the model's");
        let large = GpuError::TooLarge { label: "h".to_owned(), bytes: 2, limit: 1 };
        assert_eq!(Code::of(&Error::Model(large.into())), Code::OutOfMemory, "a limit");
        assert_eq!(Code::of(&Error::PromptTooLong { tokens: 9, context: 8 }), Code::ContextLength, "context");
        assert_eq!(Code::of(&Error::NoTemplate), Code::Request, "request");
        assert_eq!(Code::of(&Error::Vocabulary { tokenizer: 2, model: 1 }), Code::Model, "model");
    }
}
