#include "tasks/token_shards.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"
#include "io/base/atomic_file.h"
#include "io/tensors.h"
#include "models/stage.h"

namespace melete {

namespace fs = std::filesystem;

namespace {

constexpr int kVersion = 1;

fs::path info_path(const std::string& folder) {
  return fs::path(folder) / "tokens.json";
}

fs::path shard_path(const std::string& folder, int64_t number) {
  return fs::path(folder) / fmt::format("shard_{:05}.safetensors", number);
}

nlohmann::ordered_json read_json(const fs::path& path) {
  std::ifstream file(path);
  require(file.good(), "[tokens] cannot read {}", path.string());
  try {
    return nlohmann::ordered_json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    fail("[tokens] {} is damaged: {}", path.string(), error.what());
  }
}

at::Tensor packed(const at::Tensor& ids, int64_t values) {
  return ids.to(values <= 32768 ? at::kShort : at::kInt).contiguous();
}

// Random starts that fall on the same time in both kinds of tokens.
int64_t at_rate(double seconds, double rate) {
  return static_cast<int64_t>(std::llround(seconds * rate));
}

}  // namespace

TokenInfo TokenInfo::of(const Tokenizers& tokenizers) {
  TokenInfo info;
  if (const auto& semantic = tokenizers.semantic) {
    info.semantic_identity = semantic->identity();
    info.semantic_tokens = semantic->codebook_size();
    info.tokens_per_second = semantic->tokens_per_second();
  }
  if (const auto& codec = tokenizers.codec) {
    info.codec_identity = codec->identity();
    info.codebook_size = codec->codebook_size();
    info.quantizers = codec->quantizers();
    info.frames_per_second = codec->frames_per_second();
  }
  return info;
}

nlohmann::ordered_json TokenInfo::json() const {
  return {{"format", "melete tokens"},
          {"version", kVersion},
          {"semantic_identity", semantic_identity},
          {"codec_identity", codec_identity},
          {"semantic_tokens", semantic_tokens},
          {"codebook_size", codebook_size},
          {"quantizers", quantizers},
          {"tokens_per_second", tokens_per_second},
          {"frames_per_second", frames_per_second}};
}

TokenInfo TokenInfo::from(const nlohmann::ordered_json& json) {
  require(json.value("format", "") == "melete tokens", "[tokens] tokens.json is not one of melete's");
  require(json.value("version", 0) == kVersion, "[tokens] expected version {} of tokens.json, got {}",
          kVersion, json.value("version", 0));
  TokenInfo info;
  info.semantic_identity = json.at("semantic_identity");
  info.codec_identity = json.at("codec_identity");
  info.semantic_tokens = json.at("semantic_tokens");
  info.codebook_size = json.at("codebook_size");
  info.quantizers = json.at("quantizers");
  info.tokens_per_second = json.at("tokens_per_second");
  info.frames_per_second = json.at("frames_per_second");
  return info;
}

bool is_token_folder(const std::string& path) {
  return fs::exists(info_path(path));
}

TokenInfo read_token_info(const std::string& folder) {
  return TokenInfo::from(read_json(info_path(folder)));
}

TokenizeResult tokenize_recordings(const std::vector<ManifestEntry>& entries, const Tokenizers& tokenizers,
                                   const std::string& folder, const TokenizeOptions& options) {
  require(tokenizers.semantic || tokenizers.codec,
          "[tokens] nothing to make; give a semantic tokenizer, a codec, or both");
  const TokenInfo info = TokenInfo::of(tokenizers);
  std::string list;
  for (const ManifestEntry& entry : entries) list += entry.path + "\n";
  auto about = info.json();
  about["recordings"] = fmt::format("{:016x}", random_key(0, list));
  about["files_per_shard"] = options.files_per_shard;
  fs::create_directories(folder);
  if (is_token_folder(folder)) {
    const auto old = read_json(info_path(folder));
    for (const auto& [key, value] : about.items())
      require(old.contains(key) && old[key] == value,
              "[tokens] {} was begun with another {} ({}, now {}); use a new folder", folder, key,
              old.contains(key) ? old[key].dump() : "none", value.dump());
  } else {
    AtomicFile file(info_path(folder).string());
    file.write(about.dump(2) + "\n");
    file.commit();
  }

  DataConfig config;
  config.rates_hz = tokenizers.rates_hz();
  const AudioDataset dataset(entries, config);
  TokenizeResult result;
  const auto count = static_cast<int64_t>(entries.size());
  for (int64_t first = 0, shard = 0; first < count; first += options.files_per_shard, ++shard) {
    const int64_t last = std::min(count, first + options.files_per_shard);
    const fs::path path = shard_path(folder, shard);
    if (fs::exists(path)) {
      result.already += last - first;
      if (options.progress) options.progress(last, count);
      continue;
    }
    TensorMap tensors;
    auto items = nlohmann::ordered_json::array();
    for (int64_t index = first; index < last; ++index) {
      try {
        Batch batch = collate({dataset.read(index, 0)}, true);
        tokenize(batch, {tokenizers.semantic, tokenizers.codec, nullptr});
        const auto prefix = std::to_string(items.size());
        if (batch.semantic.defined())
          tensors[prefix + ".semantic"] = packed(batch.semantic[0], info.semantic_tokens);
        if (batch.acoustic.defined())
          tensors[prefix + ".acoustic"] = packed(batch.acoustic[0], info.codebook_size);
        items.push_back({{"path", batch.paths[0]}, {"text", batch.texts[0]}});
        ++result.files;
      } catch (const std::exception& error) {
        ++result.failed;
        if (options.on_failure) options.on_failure(entries[static_cast<size_t>(index)].path, error.what());
      }
      if (options.progress) options.progress(index + 1, count);
    }
    write_tensors(path.string(), tensors, {{"items", items.dump()}});
  }
  return result;
}

std::vector<TokenItem> read_token_items(const std::string& folder) {
  std::vector<TokenItem> items;
  for (int64_t shard = 0; fs::exists(shard_path(folder, shard)); ++shard) {
    const std::string path = shard_path(folder, shard).string();
    const SafetensorsFile file(path);
    const TensorMap tensors = read_tensors(file);
    const auto listed = nlohmann::ordered_json::parse(file.metadata().at("items"));
    for (size_t i = 0; i < listed.size(); ++i) {
      TokenItem item;
      item.path = listed[i].at("path");
      item.text = listed[i].at("text");
      const auto find = [&](const char* kind) {
        const auto found = tensors.find(fmt::format("{}.{}", i, kind));
        return found == tensors.end() ? at::Tensor() : found->second.clone();
      };
      item.semantic = find("semantic");
      item.acoustic = find("acoustic");
      items.push_back(std::move(item));
    }
  }
  require(!items.empty(), "[tokens] {} holds no tokens yet; run `melete data tokenize` to its end", folder);
  return items;
}

TokenSplit split_tokens(std::vector<TokenItem> items, double valid_fraction, uint64_t seed) {
  std::vector<ManifestEntry> entries(items.size());
  for (size_t i = 0; i < items.size(); ++i) entries[i].path = items[i].path;
  std::set<std::string> held_out;
  for (const ManifestEntry& entry : split(entries, valid_fraction, seed).valid) held_out.insert(entry.path);
  TokenSplit result;
  for (TokenItem& item : items)
    (held_out.count(item.path) ? result.valid : result.train).push_back(std::move(item));
  return result;
}

TokenBatches::TokenBatches(std::vector<TokenItem> items, const TokenInfo& info, double segment_seconds,
                           int64_t batch_size, uint64_t seed, int rank, int rank_count, bool split)
    : items_(std::move(items)),
      info_(info),
      segment_seconds_(segment_seconds),
      seed_(seed),
      share_{batch_size * rank_count, batch_size * rank, batch_size},
      rank_count_(rank_count) {
  require(!items_.empty(), "[tokens] no items to train on");
  if (!split) return;
  const int64_t each = batch_size / rank_count, more = batch_size % rank_count;
  share_ = {batch_size, each * rank + std::min<int64_t>(rank, more), each + (rank < more ? 1 : 0)};
  require(each > 0, "[batch_size] a batch of {} cannot be split over {} ranks", batch_size, rank_count);
}

double TokenBatches::weight() const {
  return static_cast<double>(share_.count * rank_count_) / static_cast<double>(share_.all);
}

Batch TokenBatches::batch(int64_t number) {
  Batch batch;
  batch.number = number;
  std::vector<at::Tensor> semantic, acoustic;
  for (int64_t i = 0; i < share_.count; ++i) {
    const int64_t position = first_item_ + number * share_.all + share_.first + i;
    const auto epoch = static_cast<uint64_t>(position / size());
    const int64_t place = position % size();
    if (order_.empty() || order_epoch_ != epoch) {
      order_ = Rng(random_key(seed_, "order", {epoch})).permutation(size());
      order_epoch_ = epoch;
    }
    const auto index = static_cast<uint64_t>(order_[static_cast<size_t>(place)]);
    const TokenItem& item = items_[static_cast<size_t>(index)];
    batch.paths.push_back(item.path);
    batch.texts.push_back(item.text);

    const double seconds = item.acoustic.defined()
                               ? static_cast<double>(item.acoustic.size(0)) / info_.frames_per_second
                               : static_cast<double>(item.semantic.size(0)) / info_.tokens_per_second;
    double start = 0, length = seconds;
    if (segment_seconds_ > 0 && seconds > segment_seconds_) {
      length = segment_seconds_;
      start = Rng(random_key(seed_, "segment", {epoch, index})).uniform(0, seconds - length);
    }
    const auto part = [&](const at::Tensor& tokens, double rate) {
      const int64_t from = std::min(at_rate(start, rate), tokens.size(0));
      const int64_t count = std::min(at_rate(length, rate), tokens.size(0) - from);
      // A whole item is taken whole, whatever its rates round to.
      return length == seconds ? tokens.to(at::kLong) : tokens.narrow(0, from, count).to(at::kLong);
    };
    if (item.semantic.defined()) semantic.push_back(part(item.semantic, info_.tokens_per_second));
    if (item.acoustic.defined()) acoustic.push_back(part(item.acoustic, info_.frames_per_second));
  }
  if (!semantic.empty()) batch.semantic = stack_padded(semantic);
  if (!acoustic.empty()) batch.acoustic = stack_padded(acoustic);
  if (text_) batch.text_features = text_->encode(batch.texts).embeddings;
  return batch;
}

}  // namespace melete
