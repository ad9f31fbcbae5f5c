#include "systems/voicebox/generation_speech.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>

#include "core/base/error.h"
#include "data/base/unicode.h"
#include "generate/sampling.h"
#include "io/audio_tensor.h"
#include "systems/voicebox/phoneme_frames.h"
#include "systems/voicebox/sampling_together.h"

namespace melete::voicebox {

namespace {

std::vector<double> summed(const std::vector<double>& seconds) {
  std::vector<double> ends;
  double end = 0;
  for (const double part : seconds) ends.push_back(end += part);
  return ends;
}

int64_t frames_in(double seconds, double frames_per_second) {
  return std::max<int64_t>(1, std::llround(seconds * frames_per_second));
}

template <class T>
std::vector<T> joined_lists(const std::vector<T>& first, const std::vector<T>& second) {
  std::vector<T> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

}  // namespace

std::vector<ScriptPart> read_script(std::string_view text) {
  static const std::regex kBreak(R"(<break\s+([0-9]*\.?[0-9]+)\s*(m?s)\s*/?>)");
  const std::string all(text);
  std::vector<ScriptPart> parts;
  const auto add_sentences = [&](const std::string& between) {
    for (const std::string& sentence : sentences(between)) parts.push_back({sentence, 0});
  };
  size_t at = 0;
  for (auto found = std::sregex_iterator(all.begin(), all.end(), kBreak); found != std::sregex_iterator();
       ++found) {
    add_sentences(all.substr(at, static_cast<size_t>(found->position()) - at));
    parts.push_back({"", std::stod((*found)[1]) * ((*found)[2] == "ms" ? 1e-3 : 1)});
    at = static_cast<size_t>(found->position() + found->length());
  }
  const std::string rest = all.substr(at);
  if (const size_t bad = rest.find("<break"); bad != std::string::npos)
    fail("[text] a pause is written <break 0.5s>, got \"{}\"", rest.substr(bad, 20));
  add_sentences(rest);
  require(!parts.empty(), "[text] nothing to say in \"{}\"", text);
  return parts;
}

std::string with_words_replaced(std::string_view text, std::string_view old, std::string_view with) {
  const std::u32string whole = code_points(text), words = code_points(old);
  const auto inside_word = [&](size_t i) { return is_letter(whole[i]) || is_number(whole[i]); };
  std::vector<size_t> places;
  for (size_t at = 0; !words.empty() && at + words.size() <= whole.size(); ++at) {
    const size_t end = at + words.size();
    if (at > 0 && inside_word(at - 1) && inside_word(at)) continue;
    if (end < whole.size() && inside_word(end - 1) && inside_word(end)) continue;
    if (lower(whole.substr(at, words.size())) == lower(words)) places.push_back(at);
  }
  require(!places.empty(), "[replace] the words `{}` are not in \"{}\"", old, text);
  require(places.size() == 1, "[replace] `{}` is {} times in \"{}\"; give the words beside it as well", old,
          places.size(), text);
  return utf8(whole.substr(0, places[0])) + std::string(with) + utf8(whole.substr(places[0] + words.size()));
}

std::string words_of(const std::string& recording, const std::string& given, const char* flag) {
  if (!given.empty()) return given;
  const auto beside = std::filesystem::path(recording).replace_extension(".txt");
  std::ifstream in(beside);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (text.empty())
    throw UsageError(fmt::format("say what {} says: {} TEXT, or {} beside it", recording, flag,
                                 beside.filename().string()));
  return text;
}

KnownSpeech hear(const LoadedVoicebox& voicebox, SpeechAligner& aligner, const std::string& path,
                 const std::string& text, double longest_seconds) {
  KnownSpeech speech;
  speech.phonemes = Phonemizer(voicebox.phonemizer)(text);
  const auto ends = aligner.ends_seconds(read_mono(path, aligner.rate_hz()), speech.phonemes);
  size_t kept = ends.size();
  if (longest_seconds > 0)
    while (kept > 1 && ends[kept - 1] > longest_seconds) --kept;
  speech.phonemes.resize(kept);
  double before = 0;
  for (size_t i = 0; i < kept; ++i) {
    speech.seconds.push_back(ends[i] - before);
    before = ends[i];
  }
  const double seconds = kept < ends.size() ? before : 0;  // 0: all of it
  const AudioFeatures& features = *voicebox.features;
  speech.frames =
      voicebox.scale.apply(features.encode(read_mono(path, features.rate_hz(), seconds).unsqueeze(0)));
  return speech;
}

Speaker::Speaker(LoadedVoicebox voicebox, SpeechDurations durations, std::unique_ptr<SpeechAligner> aligner)
    : voicebox_(std::move(voicebox)),
      durations_(std::move(durations)),
      aligner_(std::move(aligner)),
      phonemizer_(voicebox_.phonemizer) {}

at::Tensor Speaker::tokens_of(const Phonemes& phonemes, const std::vector<int64_t>& counts) const {
  return ids_by_frame(voicebox_.phonemes.ids(phonemes), counts).unsqueeze(0);
}

KnownSpeech Speaker::hear(const std::string& path, const std::string& text, double longest_seconds) {
  require(aligner_ != nullptr, "[aligner] to know when {} says what, give --aligner RUN", path);
  return voicebox::hear(voicebox_, *aligner_, path, text, longest_seconds);
}

std::vector<at::Tensor> Speaker::sampled(const std::vector<Condition>& rows,
                                         const std::vector<int64_t>& numbers, const Reading& how,
                                         OdeWork& work) {
  const SampledRows made = sample_together(voicebox_.model, rows, how.sampling, [&](size_t row) {
    return std::make_unique<RowDraws>(how.seed, "voicebox", 1, numbers[row]);
  });
  work += made.work;
  std::vector<at::Tensor> waves;
  for (const at::Tensor& frames : made.frames)
    waves.push_back(voicebox_.features->decode(voicebox_.scale.undo(frames))[0]);
  return waves;
}

Speaker::Sentence Speaker::prepare(const std::string& sentence, const KnownSpeech* voice, const Reading& how,
                                   int64_t number) {
  const at::NoGradGuard no_grad;
  const double per_second = voicebox_.features->frames_per_second();
  const KnownSpeech nobody{at::zeros({1, 0, voicebox_.features->dim()}), {}, {}};
  const KnownSpeech& before = voice != nullptr ? *voice : nobody;
  const Phonemes text = phonemizer_(sentence);

  // The predictor sees how fast the voice speaks.
  const auto all = durations_.seconds(joined_lists(before.phonemes, text),
                                      joined_lists(before.seconds, std::vector<double>(text.size(), -1)));
  std::vector<double> seconds(all.begin() + static_cast<int64_t>(before.phonemes.size()), all.end());
  double total = 0;
  for (double& part : seconds) total += part /= how.speed;
  if (how.seconds > 0)
    for (double& part : seconds) part *= how.seconds / total;
  const auto ends = summed(seconds);

  const int64_t known = before.frames.size(1), made = frames_in(ends.back(), per_second);
  const auto known_counts =
      known > 0 ? frames_of(summed(before.seconds), per_second, known) : std::vector<int64_t>();
  Sentence result;
  result.known = known;
  result.number = number;
  Condition& condition = result.condition;
  condition.tokens = tokens_of(joined_lists(before.phonemes, text),
                               joined_lists(known_counts, frames_of(ends, per_second, made)));
  condition.context = with_length(before.frames, known + made);
  condition.hidden = at::ones({1, known + made}, at::kBool);
  condition.hidden.narrow(1, 0, known).fill_(false);
  return result;
}

std::vector<at::Tensor> Speaker::read(const std::vector<Sentence>& together, const Reading& how,
                                      OdeWork& work) {
  const at::NoGradGuard no_grad;
  std::vector<Condition> rows;
  std::vector<int64_t> numbers;
  for (const Sentence& sentence : together) {
    rows.push_back(sentence.condition);
    numbers.push_back(sentence.number);
  }
  std::vector<at::Tensor> waves = sampled(rows, numbers, how, work);
  for (size_t i = 0; i < waves.size(); ++i) {
    const int64_t samples = waves[i].size(0);
    const int64_t skip = std::min(together[i].known * voicebox_.features->samples_per_frame(), samples);
    waves[i] = waves[i].narrow(0, skip, samples - skip);
  }
  return waves;
}

Speaker::Remade Speaker::remake(const KnownSpeech& speech, int64_t from, int64_t to, int64_t made,
                                const at::Tensor& tokens, const Reading& how) {
  const int64_t after = speech.frames.size(1) - to;
  Condition condition;
  condition.tokens = tokens;
  condition.context = at::cat({speech.frames.narrow(1, 0, from), at::zeros({1, made, speech.frames.size(2)}),
                               speech.frames.narrow(1, to, after)},
                              1);
  condition.hidden = at::zeros({1, from + made + after}, at::kBool);
  condition.hidden.narrow(1, from, made).fill_(true);
  Remade result;
  const at::Tensor wave = sampled({condition}, {0}, how, result.work)[0];
  const int64_t hop = voicebox_.features->samples_per_frame();
  const int64_t start = std::min(from * hop, wave.size(0)), end = std::min((from + made) * hop, wave.size(0));
  const double per_second = voicebox_.features->frames_per_second();
  result.wave = wave.narrow(0, start, end - start);
  result.from_seconds = static_cast<double>(from) / per_second;
  result.to_seconds = static_cast<double>(to) / per_second;
  return result;
}

Speaker::Remade Speaker::replace(const KnownSpeech& speech, const std::string& text, const Reading& how) {
  const at::NoGradGuard no_grad;
  const Phonemes wanted = phonemizer_(text);
  const Phonemes& said = speech.phonemes;
  const size_t shorter = std::min(said.size(), wanted.size());
  size_t first = 0, last = 0;  // how many are the same at the beginning and at the end
  while (first < shorter && said[first] == wanted[first]) ++first;
  while (last < shorter - first && said[said.size() - 1 - last] == wanted[wanted.size() - 1 - last]) ++last;
  require(first < said.size() || said.size() != wanted.size(),
          "[edit] the new words sound like the old ones: there is nothing to change");
  // Neighbours sound different beside something else.
  first -= std::min<size_t>(first, 1);
  last -= std::min<size_t>(last, 1);

  std::vector<double> known(wanted.size(), -1);
  std::copy_n(speech.seconds.begin(), first, known.begin());
  std::copy_n(speech.seconds.end() - static_cast<int64_t>(last), last,
              known.end() - static_cast<int64_t>(last));
  const auto seconds = durations_.seconds(wanted, known);

  const double per_second = voicebox_.features->frames_per_second();
  const auto counts = frames_of(summed(speech.seconds), per_second, speech.frames.size(1));
  const auto count = [](auto begin, auto end) { return std::accumulate(begin, end, int64_t{0}); };
  const auto after = counts.end() - static_cast<int64_t>(last);
  const int64_t from = count(counts.begin(), counts.begin() + static_cast<int64_t>(first));
  const int64_t to = speech.frames.size(1) - count(after, counts.end());
  std::vector<double> middle(seconds.begin() + static_cast<int64_t>(first),
                             seconds.end() - static_cast<int64_t>(last));
  for (double& part : middle) part /= how.speed;
  const auto ends = summed(middle);
  const int64_t made = frames_in(ends.back(), per_second);
  const std::vector<int64_t> before(counts.begin(), counts.begin() + static_cast<int64_t>(first));
  const auto all_counts = joined_lists(joined_lists(before, frames_of(ends, per_second, made)),
                                       std::vector<int64_t>(after, counts.end()));
  return remake(speech, from, to, made, tokens_of(wanted, all_counts), how);
}

Speaker::Remade Speaker::repair(const KnownSpeech& speech, double from_seconds, double to_seconds,
                                const Reading& how) {
  const at::NoGradGuard no_grad;
  const double per_second = voicebox_.features->frames_per_second();
  const int64_t frames = speech.frames.size(1);
  const int64_t from = std::clamp<int64_t>(std::llround(from_seconds * per_second), 0, frames);
  const int64_t to = std::clamp<int64_t>(std::llround(to_seconds * per_second), 0, frames);
  require(from < to, "[denoise] expected a stretch inside the {:.2f} s of the recording, got {} to {}",
          static_cast<double>(frames) / per_second, from_seconds, to_seconds);
  const auto counts = frames_of(summed(speech.seconds), per_second, frames);
  return remake(speech, from, to, to - from, tokens_of(speech.phonemes, counts), how);
}

std::vector<float> splice(const std::vector<float>& recording, const std::vector<float>& made, int64_t from,
                          int64_t to, int64_t fade_samples) {
  const auto size = static_cast<int64_t>(recording.size()), count = static_cast<int64_t>(made.size());
  require(from >= 0 && from <= to && to <= size, "[splice] expected 0 <= {} <= {} <= {}", from, to, size);
  std::vector<float> middle = made;
  const int64_t fade = std::min({fade_samples, count / 2, to - from});
  for (int64_t i = 0; i < fade; ++i) {
    const float share = (static_cast<float>(i) + 0.5f) / static_cast<float>(fade);
    float& head = middle[static_cast<size_t>(i)];
    head = share * head + (1 - share) * recording[static_cast<size_t>(from + i)];
    float& tail = middle[static_cast<size_t>(count - 1 - i)];
    tail = share * tail + (1 - share) * recording[static_cast<size_t>(to - 1 - i)];
  }
  std::vector<float> result(recording.begin(), recording.begin() + from);
  result.insert(result.end(), middle.begin(), middle.end());
  result.insert(result.end(), recording.begin() + to, recording.end());
  return result;
}

}  // namespace melete::voicebox
