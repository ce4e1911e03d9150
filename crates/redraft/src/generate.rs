//! Streaming an answer.

use crate::answer::{GenerateOptions, Generation, Stage, Step, Timings};
use crate::costs::Habits;
use crate::speculation::Rounds;
use crate::{Engine, Error, LEAST_CONTEXT, Speculation};
use redraft_decode::draft::{Extent, Origin, Plan, Policy};
use redraft_decode::sampling::key_float;
use redraft_decode::{StopPolicy, StopReason, TokenId, log_probs};
use redraft_gpu::Pass;
use redraft_model::{Batch, LogitRows, ModelError};
use redraft_text::{Detokenizer, StopMatcher};
use web_time::Instant;

/// An answer being made. Dropping it ends it; the tokens so far stay in the engine's sequence.
#[derive(Debug)]
pub struct TokenStream<'e> {
    engine: &'e mut Engine,
    prompt: Vec<TokenId>,
    options: GenerateOptions,
    policy: StopPolicy,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    ids: Vec<TokenId>,
    text: String,
    ended: Option<StopReason>,
    timings: Timings,
    reused: u32,
    /// Positions that need not be computed again where the drafter takes part.
    reusable: u32,
    rounds: Option<Rounds>,
}

/// A token with the row of logits that it was drawn from.
#[derive(Debug, Clone, Copy)]
struct Sampled {
    id: TokenId,
    origin: Origin,
    row: u32,
}

impl<'e> TokenStream<'e> {
    pub(crate) fn new(
        engine: &'e mut Engine,
        prompt: &[TokenId],
        options: GenerateOptions,
    ) -> Result<Self, Error> {
        // One slot must be left for the first token of the answer.
        engine.check_prompt(prompt, 0, engine.context().saturating_sub(1))?;
        options.sampling.validate(engine.config().vocab)?;
        let stops = StopMatcher::new(options.stop.iter().map(String::as_str))?;
        let shared = engine.sequence.iter().zip(prompt).take_while(|(held, wanted)| held == wanted).count();
        // The last token of the prompt is computed again: its logits are what the answer begins with.
        let mut reused = u32::try_from(shared.min(prompt.len() - 1)).unwrap_or(0);
        let shared = u32::try_from(shared).unwrap_or(0);
        let mut reusable = reused;
        if let Some(speculator) = &engine.speculator {
            reusable = reused.min(speculator.reusable(shared));
        }
        let rounds = match options.speculation {
            Speculation::Off => None,
            speculation => {
                if let Speculation::Plan(plan) = speculation {
                    plan.validate().map_err(ModelError::from)?;
                    if plan.drafter && !engine.has_drafter() {
                        return Err(ModelError::NoDrafter.into());
                    }
                    engine.check_gate(&plan)?;
                }
                let features = speculation.drafts() && engine.needs_features();
                if features {
                    reused = reusable;
                }
                Some(Rounds::new(speculation, features, reused))
            }
        };
        engine.truncate(reused);
        let eos = if options.ignore_eos { &[] } else { engine.tokenizer().eos_ids() };
        let policy = StopPolicy {
            eos: eos.iter().copied().map(TokenId).collect(),
            max_tokens: Some(options.max_tokens),
            context: engine.context(),
        };
        let detokenizer = Detokenizer::new(engine.tokenizer()).continuing();
        Ok(Self {
            engine,
            prompt: prompt.to_vec(),
            policy,
            detokenizer,
            stops,
            ids: Vec::new(),
            text: String::new(),
            ended: (options.max_tokens == 0).then_some(StopReason::MaxTokens),
            timings: Timings::default(),
            reused,
            reusable,
            rounds,
            options,
        })
    }

    /// The engine that answers.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// What the next call of [`Self::next`] begins with.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match (self.ended, self.ids.is_empty()) {
            (Some(_), _) => Stage::Ended,
            (None, true) if self.measures() => Stage::Measuring,
            (None, true) => Stage::Prompt,
            (None, false) => Stage::Answer,
        }
    }

    /// Whether costs have to be measured before the first token.
    fn measures(&self) -> bool {
        let unknown = self.options.speculation == Speculation::Auto && self.engine.policy.is_none();
        unknown && self.engine.context() >= LEAST_CONTEXT && !self.options.cancel.is_cancelled()
    }

    /// The next token, or `None` after the last.
    ///
    /// # Errors
    /// [`Error::Model`], [`Error::Gpu`]; the answer cannot go on then.
    pub async fn next(&mut self) -> Result<Option<Step>, Error> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let started = Instant::now();
        let first = self.ids.is_empty();
        let sampled = match (first, &self.rounds) {
            (true, _) => self.prefill().await?,
            (false, Some(rounds)) if rounds.given_up.is_none() || !rounds.queue.is_empty() => {
                self.speculate().await?
            }
            (false, _) => self.decode().await?,
        };
        let Some(Sampled { id, origin, row }) = sampled else {
            self.end(StopReason::Cancelled);
            return Ok(None);
        };
        let log_probs = match self.options.log_probs {
            Some(top) => Some(log_probs(&self.engine.logits_of(row).await?, id, usize::from(top))?),
            None => None,
        };
        let text = self.take(id)?;
        let elapsed = started.elapsed().as_secs_f64();
        if first {
            self.timings.prefill_s += elapsed;
        } else {
            self.timings.decode_s += elapsed;
            self.timings.decode_tokens += 1;
        }
        let trace = self.rounds.as_mut().and_then(|rounds| rounds.trace.take());
        Ok(Some(Step { id, text, log_probs, origin, trace }))
    }

    /// Computes what is left of the prompt, chunk by chunk, and samples; `None` if cancelled.
    async fn prefill(&mut self) -> Result<Option<Sampled>, Error> {
        let chunk = self.engine.model.max_rows() as usize;
        self.set_up_rounds().await;
        if self.options.log_probs.is_some() {
            self.engine.ready_for_logits().await?;
        }
        self.engine.sampler.configure(&self.options.sampling).await?;
        // Penalties look back on the whole prompt, reused or not.
        self.engine.sampler.commit(0, &self.engine.sequence)?;
        loop {
            if self.options.cancel.is_cancelled() {
                return Ok(None);
            }
            let done = self.engine.sequence.len();
            let left = self.prompt.get(done..).unwrap_or_default();
            let part = &left[..left.len().min(chunk)];
            let last = part.len() == left.len();
            let count = u32::try_from(part.len()).unwrap_or(0);
            if last {
                let batch = Batch::chain(self.engine.position(), part, LogitRows::Last);
                let sampled = self.sample(batch).await?;
                self.timings.prefill_tokens += count;
                return Ok(Some(sampled));
            }
            let engine = &mut *self.engine;
            let first = engine.position();
            let mut batch = Batch::chain(first, part, LogitRows::None);
            let rounds = self.rounds.as_mut().filter(|rounds| rounds.features);
            if rounds.is_some() {
                batch = batch.with_captures();
            }
            engine.sampler.prepare(&batch)?;
            let speculator = engine.speculator.as_mut().zip(rounds);
            let keep = |pass: &mut Pass<'_>| match &speculator {
                Some((speculator, _)) => speculator.record_features(pass, count, 0),
                None => Ok(()),
            };
            let started = Instant::now();
            engine.model.submit(&batch, keep, &[])?;
            // Waiting for each chunk keeps submissions short and cancellation prompt.
            engine.model.gpu().flush().await?;
            let row = started.elapsed().as_secs_f64() / f64::from(count.max(1));
            Habits::learn(&mut engine.habits.row, row);
            if let Some((speculator, rounds)) = speculator {
                // The drafter pairs each feature with the token behind it.
                let next = self.prompt.get(done + 1..done + 1 + part.len()).unwrap_or_default();
                let started = Instant::now();
                speculator.extend(first, next, false)?;
                engine.model.gpu().flush().await?;
                let seconds = started.elapsed().as_secs_f64();
                Habits::learn(&mut engine.habits.chunk, seconds);
                rounds.extra += seconds;
                rounds.unseen = first + count;
            }
            engine.sequence.extend_from_slice(part);
            self.timings.prefill_tokens += count;
        }
    }

    /// Makes what speculation needs. What fails there is no reason not to answer: speculation is off then, and says why.
    async fn set_up_rounds(&mut self) {
        let measures = self.measures();
        let Some(rounds) = &mut self.rounds else { return };
        let mut ready = Ok(());
        if measures {
            // Measuring forgets the sequence.
            let started = Instant::now();
            let measured = self.engine.measure_costs(Extent::Bounded, &self.options.cancel).await;
            ready = measured.map(|_| ());
            self.timings.measuring_s = started.elapsed().as_secs_f64();
            self.engine.reset();
            (self.reused, self.reusable, rounds.unseen) = (0, 0, 0);
        }
        if ready.is_ok() {
            let GenerateOptions { sampling, coupled, .. } = &self.options;
            ready = self.engine.ready(sampling, &self.policy.eos, *coupled).await;
        }
        if let Err(error) = ready {
            rounds.features = false;
            if matches!(error, Error::Cancelled) {
                // So is the answer.
                return;
            }
            rounds.given_up = Some(format!("speculation could not be set up: {error}"));
            return;
        }
        if rounds.automatic() && self.engine.needs_features() {
            self.engage();
        }
    }

    /// Decides whether the drafter takes part in an automatic answer. What it would have to see is computed again.
    fn engage(&mut self) {
        let (Some(rounds), engine) = (&mut self.rounds, &mut *self.engine) else { return };
        let (reused, reusable) = (self.reused, self.reusable.min(self.reused));
        let left = u32::try_from(self.prompt.len()).unwrap_or(u32::MAX) - reused;
        if !engine.engage(left, reused, reusable, self.options.max_tokens) {
            return;
        }
        rounds.features = true;
        rounds.patience = engine.patience(self.options.max_tokens);
        rounds.unseen = reusable;
        rounds.extra += engine.habits.row.unwrap_or(0.0) * f64::from(reused - reusable);
        self.reused = reusable;
        engine.truncate(reusable);
    }

    /// The next token of the round at hand, or of a new one; `None` if cancelled.
    async fn speculate(&mut self) -> Result<Option<Sampled>, Error> {
        if self.options.cancel.is_cancelled() {
            return Ok(None);
        }
        let (Some(rounds), Some(last)) = (&mut self.rounds, self.ids.last().copied()) else {
            return Ok(None);
        };
        let engine = &mut *self.engine;
        if rounds.queue.is_empty() {
            rounds.count(rounds.seen(), false, engine.policy.as_mut());
            if rounds.automatic() && engine.policy.as_ref().is_some_and(Policy::looks_up) {
                let found = engine.finds(last);
                engine.policy.iter_mut().for_each(|policy| policy.set_found(found));
            }
            // Without a drafter, and with nothing to look up, a round would verify a batch of nothing.
            let works = |plan: &Plan| plan.drafter || engine.finds(last);
            let Some(plan) = rounds.choose(engine.policy.as_ref()).filter(works) else {
                return self.plain().await;
            };
            let answered = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
            let limit = self.options.max_tokens.saturating_sub(answered);
            let stepwise = (self.options.trace || !self.options.on_cpu.is_empty())
                .then_some(self.options.on_cpu.as_slice());
            let fixed = matches!(self.options.speculation, Speculation::Plan(_));
            let late = self.options.read_late
                && fixed
                && stepwise.is_none()
                && self.options.log_probs.is_none()
                && rounds.given_up.is_none();
            let started = Instant::now();
            let result = engine.round(rounds, plan, last, limit, stepwise, late).await?;
            let seconds = started.elapsed().as_secs_f64();
            if !self.options.trace {
                rounds.trace = None;
            }
            rounds.take(result, plan, Some(seconds).filter(|_| stepwise.is_none()));
        }
        let Some(emitted) = rounds.queue.pop_front() else { return Ok(None) };
        engine.sequence.push(last);
        Ok(Some(Sampled { id: emitted.id, origin: emitted.origin, row: emitted.row }))
    }

    /// A plain step of an answer that speculates; `None` if cancelled.
    async fn plain(&mut self) -> Result<Option<Sampled>, Error> {
        let before = self.rounds.as_ref().map_or(0.0, |rounds| rounds.extra);
        let started = Instant::now();
        let sampled = self.decode().await?;
        if let Some(rounds) = self.rounds.as_mut().filter(|_| sampled.is_some()) {
            // What the drafter took in between is no plain step's.
            let seconds = started.elapsed().as_secs_f64() - (rounds.extra - before);
            rounds.plain(seconds, self.engine.policy.as_mut());
        }
        Ok(sampled)
    }

    /// Computes the last token of the answer and samples the next; `None` if cancelled.
    async fn decode(&mut self) -> Result<Option<Sampled>, Error> {
        if self.options.cancel.is_cancelled() {
            return Ok(None);
        }
        let Some(last) = self.ids.last().copied() else {
            return Ok(None);
        };
        let batch = Batch::chain(self.engine.position(), &[last], LogitRows::Last);
        self.sample(batch).await.map(Some)
    }

    /// One step with sampling behind it in the same pass; reads back four bytes.
    async fn sample(&mut self, mut batch: Batch) -> Result<Sampled, Error> {
        let engine = &mut *self.engine;
        if let Some(rounds) = self.rounds.as_mut().filter(|rounds| rounds.features) {
            engine.make_room(rounds, &batch).await?;
        }
        let rows = engine.sampler.prepare(&batch)?;
        let (ids, greatest) = (engine.sampler.tokens(rows), engine.sampler.greatest(rows));
        let sampler = &engine.sampler;
        let copies = [(ids, &engine.ids), (greatest, &engine.greatest)];
        let rounds = self.rounds.as_ref().filter(|rounds| rounds.features);
        let keeper = engine.speculator.as_ref().zip(rounds);
        if keeper.is_some() {
            batch = batch.with_captures();
        }
        let behind = |pass: &mut Pass<'_>| {
            sampler.record(pass, rows)?;
            match keeper {
                Some((speculator, rounds)) => {
                    let kept = batch.committed().saturating_sub(rounds.unseen);
                    speculator.record_features(pass, batch.rows(), kept)
                }
                None => Ok(()),
            }
        };
        engine.model.submit(&batch, behind, &copies)?;
        let word = |bytes: &[u8]| bytes.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
        let greatest = key_float(word(&engine.model.gpu().read(&engine.greatest, 8).await?));
        if !greatest.is_finite() {
            let position = engine.position();
            return Err(ModelError::NotFinite { position, found: greatest }.into());
        }
        let id = word(&engine.model.gpu().read(&engine.ids, 4).await?);
        engine.sequence.extend_from_slice(batch.tokens());
        Ok(Sampled { id: TokenId(id), origin: Origin::Target, row: 0 })
    }

    /// Adds a token to the answer; returns the text that is final with it.
    fn take(&mut self, id: TokenId) -> Result<String, Error> {
        let prompt = u32::try_from(self.prompt.len()).unwrap_or(u32::MAX);
        let answered = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let ending = self.policy.end(prompt, answered, &[id]);
        self.ids.push(id);
        let is_eos = ending.reason == Some(StopReason::EndOfSequence);
        let mut text = String::new();
        if !is_eos {
            let piece = self.detokenizer.push(id.0)?;
            let output = self.stops.push(&piece);
            text = output.text;
            if output.stopped.is_some() {
                self.ended = Some(StopReason::StopString);
            }
        }
        if self.ended.is_none()
            && let Some(reason) = ending.reason
        {
            text.push_str(&self.flush());
            // Held-back bytes may complete a stop string after all.
            self.ended.get_or_insert(reason);
        }
        self.text.push_str(&text);
        Ok(text)
    }

    /// Text that was held back and will not be continued.
    fn flush(&mut self) -> String {
        let rest = self.detokenizer.finish();
        let mut output = self.stops.push(&rest);
        if output.stopped.is_none() {
            let tail = self.stops.finish();
            output.text.push_str(&tail.text);
            output.stopped = tail.stopped;
        }
        if output.stopped.is_some() {
            self.ended = Some(StopReason::StopString);
        }
        output.text
    }

    fn end(&mut self, reason: StopReason) {
        let rest = self.flush();
        self.text.push_str(&rest);
        self.ended.get_or_insert(reason);
    }

    /// The answer so far, as a whole. An answer that was not read to its end counts as cancelled.
    #[must_use]
    pub fn finish(mut self) -> Generation {
        if self.ended.is_none() {
            self.end(StopReason::Cancelled);
        }
        let stopped = self.ended != Some(StopReason::Cancelled);
        if let Some(rounds) = &mut self.rounds {
            rounds.count(rounds.seen(), stopped, self.engine.policy.as_mut());
        }
        if stopped {
            Habits::learn(&mut self.engine.habits.answer, self.ids.len() as f64);
        }
        let (speculation, warning) = match self.rounds {
            Some(rounds) => (Some(rounds.stats), rounds.given_up),
            None => (None, None),
        };
        Generation {
            text: self.text,
            prompt_ids: self.prompt,
            ids: self.ids,
            stop_reason: self.ended.unwrap_or(StopReason::Cancelled),
            timings: self.timings,
            reused_tokens: self.reused,
            speculation,
            warning,
        }
    }
}
