#include "systems/spear_tts/pairs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/token_folder.h"
#include "io/base/atomic_file.h"
#include "io/base/checksum.h"
#include "io/base/torch_writer.h"
#include "io/pickled_tensors.h"
#include "nn/frozen.h"
#include "systems/spear_tts/back_translation.h"
#include "systems/spear_tts/beam_search.h"
#include "systems/spear_tts/reading.h"
#include "systems/spear_tts/tokens.h"

namespace melete::spear_tts {

namespace fs = std::filesystem;

void describe(Schema& s, ReadingOptions& o) {
  s.option("beam", o.beams, "sequences that the search follows at once").at_least(1).at_most(256);
  s.option("batch", o.items_at_once, "items read at once").at_least(1).at_most(4096);
  s.option("files_per_shard", o.items_per_shard, "items in one file: what is lost by a kill at most")
      .at_least(1);
  s.option("longest_ratio", o.longest_ratio, "tokens of text for each semantic token, at most").at_least(0.1);
  s.option("labelled", o.labelled, "read items that have a text, too, and say how well; else leave them out");
}

void describe(Schema& s, PairFilter& f) {
  s.option("least_score", f.least_score,
           "drop texts whose mean log probability of a token is below this; -inf: none")
      .at_most(0);
  s.option("length_factor", f.length_factor,
           "drop texts whose length for the speech is so many times the median or so many times below it")
      .at_least(1);
  s.option("most_repeated", f.most_repeated,
           "drop texts of which more than this share is one passage over and over")
      .at_least(0)
      .at_most(1);
}

namespace {

std::string readings_of(const std::string& pairs) {
  return (fs::path(pairs) / "readings").string();
}

std::string weights_identity(TextToSemanticImpl& model) {
  Checksum sum;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor plain = item.value().detach().to(at::kCPU).contiguous();
    sum.add(item.key());
    sum.add(std::span(static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes()));
  }
  return sum.hex();
}

// What the readings of a folder depend on: the first process writes it, all others must agree.
void agree_on(const std::string& path, const nlohmann::ordered_json& now) {
  if (!fs::exists(path)) return write_file_atomically(path, now.dump(2) + "\n");
  std::ifstream file(path);
  const auto before = nlohmann::ordered_json::parse(file, nullptr, false);
  for (const auto& [name, value] : now.items())
    require(before.is_object() && before.value(name, nlohmann::ordered_json()) == value,
            "[back-translate] {} was begun with another {} ({}, now {}); use a new folder",
            fs::path(path).parent_path().string(), name,
            before.is_object() ? before.value(name, nlohmann::ordered_json()).dump() : "unreadable",
            value.dump());
}

struct Reading {
  std::string text;
  double score = 0;  // in the mean over its tokens, the end among them
  bool ended = false;
};

std::vector<Reading> read_batch(Reader& reader, const at::Tensor& speech, const ReadingOptions& options) {
  Source source;
  source.ids = speech.to(device_of(*reader.model));
  source.modality = Modality::speech;
  BeamSearchConfig how;
  how.beam.beams = options.beams;
  how.longest =
      16 + static_cast<int64_t>(std::ceil(options.longest_ratio * static_cast<double>(speech.size(1))));
  Generated made = beam_search(reader.model, source, Modality::text, how);
  made = {made.tokens.to(at::kCPU), made.score.to(at::kCPU)};
  const int64_t end = reader.model->text->end_id();
  std::vector<Reading> result;
  for (const TranslatedPair& pair : translated_pairs(*reader.model, speech, made)) {
    const auto row = static_cast<int64_t>(result.size());
    const auto ids = std::vector<int64_t>(pair.text.data_ptr<int64_t>(),
                                          pair.text.data_ptr<int64_t>() + pair.text.numel());
    const bool ended = end >= 0 && made.tokens[row].eq(end).any().item<bool>();
    const auto tokens = static_cast<double>(ids.size() + (ended ? 1 : 0));
    result.push_back({reader.text->text(ids), tokens > 0 ? pair.score / tokens : 0, ended});
  }
  return result;
}

// Items of like length are read together; their order stays.
void read_items(Reader& reader, std::vector<Item*> items, const ReadingOptions& options) {
  std::stable_sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    return a->find("semantic")->values.size(0) < b->find("semantic")->values.size(0);
  });
  for (size_t first = 0; first < items.size(); first += static_cast<size_t>(options.items_at_once)) {
    const size_t end = std::min(items.size(), first + static_cast<size_t>(options.items_at_once));
    std::vector<Item> rows(end - first);
    for (size_t i = first; i < end; ++i)
      rows[i - first].add("ids", items[i]->find("semantic")->values.to(at::kLong));
    at::Tensor speech = collate(rows)["ids"];
    if (!reader.repeats) speech = without_repeats(speech);
    const std::vector<Reading> read = read_batch(reader, speech, options);
    for (size_t i = first; i < end; ++i) {
      const Reading& reading = read[i - first];
      auto& words = items[i]->words;
      const int64_t tokens = speech[static_cast<int64_t>(i - first)].ge(0).sum().item<int64_t>();
      const auto ratio = static_cast<double>(characters(reading.text).size()) / std::max<double>(1, tokens);
      if (const std::string truth = words["text"]; !truth.empty()) words["written"] = truth;
      words["text"] = reading.text;
      words["score"] = fmt::format("{:.5f}", reading.score);
      words["length_ratio"] = fmt::format("{:.5f}", ratio);
      words["ended"] = reading.ended ? "yes" : "no";
    }
  }
}

}  // namespace

ReadingResult read_speech(Reader& reader, const std::string& folder, const std::string& pairs,
                          const ReadingOptions& options) {
  require(is_token_folder(folder),
          "[back-translate] {} is no folder of tokens; make one with `melete data tokenize`", folder);
  const TokenColumns columns = read_token_columns(folder);
  const TokenColumn& speech = columns.require_column("semantic", folder);
  require(reader.semantic_identity.empty() || speech.identity == reader.semantic_identity,
          "[back-translate] the semantic tokens of {} were made by {}, and the model reads those of {}",
          folder, speech.identity, reader.semantic_identity);
  std::vector<Item> items = read_token_items(folder);
  const auto all = static_cast<int64_t>(items.size());
  if (!options.labelled) std::erase_if(items, [](Item& item) { return !item.words["text"].empty(); });
  require(!items.empty(),
          "[back-translate] all {} items of {} have a text; --labelled reads them all the same", all, folder);

  std::vector<std::string> paths;
  for (Item& item : items) paths.push_back(item.words["path"]);
  fs::create_directories(pairs);
  agree_on((fs::path(pairs) / "reading.json").string(), {{"model", weights_identity(*reader.model)},
                                                         {"text tokenizer", reader.text->identity()},
                                                         {"beam", options.beams},
                                                         {"longest-ratio", options.longest_ratio}});
  const TokenFolderWriter writer(readings_of(pairs), columns, paths, options.items_per_shard);
  ReadingResult result;
  result.labelled = all - static_cast<int64_t>(items.size());
  int64_t own = 0, done = 0;
  for (int64_t shard = options.rank; shard < writer.shards(); shard += options.rank_count)
    own += writer.end_item(shard) - writer.first_item(shard);
  if (options.progress) options.progress(0, own);
  for (int64_t shard = options.rank; shard < writer.shards(); shard += options.rank_count) {
    const auto first = items.begin() + writer.first_item(shard), end = items.begin() + writer.end_item(shard);
    done += end - first;
    if (writer.has(shard)) {
      result.already += end - first;
    } else {
      std::vector<Item*> some;
      for (auto item = first; item != end; ++item) some.push_back(&*item);
      read_items(reader, some, options);
      writer.write(shard, {first, end});
      result.items += end - first;
    }
    if (options.progress) options.progress(done, own);
  }
  return result;
}

double repeated_share(const std::string& text) {
  const size_t length = text.size();
  size_t longest = 0;
  for (size_t period = 1; 3 * period <= length; ++period) {
    size_t same = 0;  // characters in a row that are as they were one period before
    for (size_t i = period; i < length; ++i) {
      same = text[i] == text[i - period] ? same + 1 : 0;
      if (same >= 2 * period) longest = std::max(longest, same + period);
    }
  }
  return length > 0 ? static_cast<double>(longest) / static_cast<double>(length) : 0;
}

namespace {

double number_of(const Item& item, const char* name) {
  const auto found = item.words.find(name);
  require(found != item.words.end(), "[back-translate] a reading has no {}", name);
  return std::stod(found->second);
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted.at(static_cast<size_t>(std::llround(share * static_cast<double>(sorted.size() - 1))));
}

// Shards of an earlier filter: the folder is no token folder until it is written anew.
void remove_pairs(const std::string& pairs) {
  fs::remove(fs::path(pairs) / "tokens.json");
  for (const auto& entry : fs::directory_iterator(pairs))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("shard_") && name.ends_with(".safetensors"))
      fs::remove(entry.path());
}

}  // namespace

FilterReport filter_pairs(const std::string& pairs, const PairFilter& filter) {
  constexpr int64_t kItemsPerShard = 1024;
  const std::string folder = readings_of(pairs);
  std::vector<Item> items = read_token_items(folder);
  FilterReport report;
  report.all = static_cast<int64_t>(items.size());
  std::vector<double> scores, ratios;
  for (const Item& item : items) {
    scores.push_back(number_of(item, "score"));
    ratios.push_back(number_of(item, "length_ratio"));
  }
  std::sort(scores.begin(), scores.end());
  std::sort(ratios.begin(), ratios.end());
  report.median_ratio = quantile(ratios, 0.5);
  report.scores = {{"5 %", quantile(scores, 0.05)},
                   {"25 %", quantile(scores, 0.25)},
                   {"median", quantile(scores, 0.5)},
                   {"75 %", quantile(scores, 0.75)}};

  // The first reason that applies counts.
  report.dropped = {{"no text", 0},
                    {"never ended", 0},
                    {fmt::format("score below {:g}", filter.least_score), 0},
                    {fmt::format("more than {:g} % repeated", 100 * filter.most_repeated), 0},
                    {fmt::format("over {:g} times as long as usual", filter.length_factor), 0},
                    {fmt::format("over {:g} times as short as usual", filter.length_factor), 0}};
  const auto reason = [&](const Item& item) -> int {
    const std::string& text = item.words.at("text");
    if (text.find_first_not_of(" \t\n") == std::string::npos) return 0;
    if (item.words.at("ended") != "yes") return 1;
    if (number_of(item, "score") < filter.least_score) return 2;
    if (repeated_share(text) > filter.most_repeated) return 3;
    const double ratio = number_of(item, "length_ratio");
    if (ratio > report.median_ratio * filter.length_factor) return 4;
    if (ratio * filter.length_factor < report.median_ratio) return 5;
    return -1;
  };
  ReadingErrors errors, kept_errors;
  std::vector<Item> kept;
  for (Item& item : items) {
    const int why = reason(item);
    if (const auto truth = item.words.find("written"); truth != item.words.end()) {
      const ReadingErrors own = character_errors(item.words.at("text"), truth->second);
      errors += own;
      if (why < 0) kept_errors += own;
      ++report.labelled;
    }
    if (why >= 0)
      ++report.dropped[static_cast<size_t>(why)].second;
    else
      kept.push_back(std::move(item));
  }
  report.kept = static_cast<int64_t>(kept.size());
  report.character_error = errors.share();
  report.kept_character_error = kept_errors.share();

  remove_pairs(pairs);
  if (kept.empty()) return report;
  std::vector<std::string> paths;
  for (const Item& item : kept) paths.push_back(item.words.at("path"));
  const TokenFolderWriter writer(pairs, read_token_columns(folder), paths, kItemsPerShard);
  for (int64_t shard = 0; shard < writer.shards(); ++shard)
    writer.write(shard, {kept.begin() + writer.first_item(shard), kept.begin() + writer.end_item(shard)});
  return report;
}

namespace {

std::vector<int64_t> ids_of(const at::Tensor& row) {
  const at::Tensor plain = row.to(at::kCPU, at::kLong).contiguous();
  return {plain.data_ptr<int64_t>(), plain.data_ptr<int64_t>() + plain.numel()};
}

}  // namespace

int64_t write_rows(Reader& reader, const std::string& pairs, const std::string& rows,
                   const RowsOptions& options) {
  fs::create_directories(rows);
  int64_t count = 0;
  for (const Item& item : read_token_items(pairs)) {
    const auto text = item.words.find("text");
    if (text == item.words.end() || text->second.empty()) continue;
    at::Tensor speech = item.find("semantic")->values.to(at::kLong);
    if (!reader.repeats) speech = without_repeats(speech.unsqueeze(0))[0];
    const std::map<std::string, at::Tensor> tensors = {
        {"row",
         pair_row(speech, at::tensor(reader.text->pieces(text->second), at::kLong), options.delimiter)}};
    std::vector<at::Tensor> keep;
    std::map<std::string, TensorBytes> bytes;
    for (TensorBytes& tensor : tensor_bytes(tensors, keep)) bytes.emplace(tensor.name, std::move(tensor));
    write_torch_file((fs::path(rows) / fmt::format("{}.pt", count++)).string(), {{"$tensor", "row"}}, bytes);
  }
  return count;
}

int64_t read_rows(Reader& reader, const std::string& rows, const std::string& pairs,
                  const RowsOptions& options) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(rows))
    if (entry.path().extension() == ".pt") files.push_back(entry.path().string());
  require(!files.empty(), "[pairs] {} is neither a folder of tokens nor one of .pt rows", rows);
  std::sort(files.begin(), files.end());
  TokenColumns columns;
  columns.list.push_back(
      {"semantic", reader.semantic_identity, reader.model->speech->config().tokens, 0, 0, 0});
  const TokenFolderWriter writer(pairs, columns, files, options.items_per_shard);
  const auto plain = [](const VocabularyImpl& vocabulary, const at::Tensor& ids) {
    return ids.masked_select(ids.ge(0).logical_and(ids.lt(vocabulary.config().tokens)));
  };
  for (int64_t shard = 0; shard < writer.shards(); ++shard) {
    std::vector<Item> items;
    for (int64_t i = writer.first_item(shard); i < writer.end_item(shard); ++i) {
      const std::string& path = files[static_cast<size_t>(i)];
      const TorchFile file(path);
      require(file.root().tensor() != nullptr, "[pairs] {} holds no row of ids", path);
      const auto [speech, text] = split_pair_row(
          to_tensor(*file.root().tensor(), file.mapping(), path).to(at::kLong), options.delimiter);
      // Their own rows have ends in both halves, which training adds by itself.
      Item& item = items.emplace_back();
      item.add("semantic", plain(*reader.model->speech, speech));
      item.words = {{"path", path}, {"text", reader.text->text(ids_of(plain(*reader.model->text, text)))}};
    }
    if (!writer.has(shard)) writer.write(shard, items);
  }
  return static_cast<int64_t>(files.size());
}

}  // namespace melete::spear_tts
