// Speech from text through phonemes: read in a voice, or put into a recording in place of something else.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "systems/voicebox/load.h"
#include "systems/voicebox/sampling.h"

namespace melete::voicebox {

// A text as it is to be read: sentences, and pauses `<break 0.5s>` between them.
struct ScriptPart {
  std::string sentence;  // empty: a pause
  double pause_seconds = 0;
};
std::vector<ScriptPart> read_script(std::string_view text);

// The text with `with` where it has `old`, as whole words in any case: "he" is not in "the". An Error where
// it is not there, or more than once.
std::string with_words_replaced(std::string_view text, std::string_view old, std::string_view with);

// A recording of which it is known what is said and when.
struct KnownSpeech {
  at::Tensor frames;  // [1, frames, dim], scaled
  Phonemes phonemes;
  std::vector<double> seconds;  // of each phoneme
};

// Text of a recording: as given, else what the .txt beside it says. flag: what a person would have given it
// by
std::string words_of(const std::string& recording, const std::string& given, const char* flag);
// longest_seconds: only so much of it, up to the end of a phoneme; 0: all
KnownSpeech hear(const LoadedVoicebox& voicebox, SpeechAligner& aligner, const std::string& path,
                 const std::string& text, double longest_seconds = 0);

struct Reading {
  FlowSampling sampling;
  double speed = 1;    // above 1: faster than the predictor says
  double seconds = 0;  // how long a sentence is to last; 0: as long as its phonemes
  uint64_t seed = 0;
};

class Speaker {
 public:
  // aligner: null where no recording is given.
  Speaker(LoadedVoicebox voicebox, SpeechDurations durations, std::unique_ptr<SpeechAligner> aligner);

  int64_t rate_hz() const { return voicebox_.features->rate_hz(); }
  Phonemes phonemes(const std::string& text) const { return phonemizer_(text); }

  // longest_seconds: only so much of it, up to the end of a phoneme; 0: all
  KnownSpeech hear(const std::string& path, const std::string& text, double longest_seconds = 0);

  // A sentence whose durations are known: what the network is told of it.
  struct Sentence {
    Condition condition;  // of one row
    int64_t known = 0;    // frames at its beginning that are the voice's
    int64_t number = 0;   // of the sentence, for its noise
    int64_t frames() const { return condition.context.size(1); }
  };
  // voice: null for any
  Sentence prepare(const std::string& text, const KnownSpeech* voice, const Reading& how, int64_t number);
  // [samples] at rate_hz() of each; through the network as one batch, and each as it would be alone.
  // work: what the solver did for it is added
  std::vector<at::Tensor> read(const std::vector<Sentence>& together, const Reading& how, OdeWork& work);

  // A stretch of a recording made anew, and where it goes.
  struct Remade {
    at::Tensor wave;                          // [samples] at rate_hz()
    OdeWork work;                             // of the solver
    double from_seconds = 0, to_seconds = 0;  // of the recording, what it takes the place of
  };
  // So that it says `text`: the phonemes that differ, and one on either side of them.
  Remade replace(const KnownSpeech& speech, const std::string& text, const Reading& how);
  // The same words again, for a stretch that is noisy.
  Remade repair(const KnownSpeech& speech, double from_seconds, double to_seconds, const Reading& how);

 private:
  // Frames `from` up to `to` of the recording give way to `made` ones; tokens [1, frames] of the whole
  // result.
  Remade remake(const KnownSpeech& speech, int64_t from, int64_t to, int64_t made, const at::Tensor& tokens,
                const Reading& how);
  // [samples] of each condition; the noise of row i is that of sentence numbers[i].
  std::vector<at::Tensor> sampled(const std::vector<Condition>& rows, const std::vector<int64_t>& numbers,
                                  const Reading& how, OdeWork& work);
  at::Tensor tokens_of(const Phonemes& phonemes, const std::vector<int64_t>& counts) const;  // [1, frames]

  LoadedVoicebox voicebox_;
  SpeechDurations durations_;
  std::unique_ptr<SpeechAligner> aligner_;
  Phonemizer phonemizer_;
};

// `made` in place of what the recording has from one time to another, faded over at both seams inside that
// stretch: every sample outside of it stays what it was. All at one rate.
std::vector<float> splice(const std::vector<float>& recording, const std::vector<float>& made, int64_t from,
                          int64_t to, int64_t fade_samples);

}  // namespace melete::voicebox
