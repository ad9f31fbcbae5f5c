#include "roles/tokenizers.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/recordings.h"

namespace melete {

namespace {

// Rows of unequal length, [n, ...] each -> int64 [rows, longest, ...], padded with -1.
at::Tensor stack_padded(const std::vector<at::Tensor>& rows) {
  std::vector<Item> items(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) items[i].add("row", rows[i]);
  return collate(items)["row"];
}

// make(wave [rows, samples]) -> tokens [rows, n, ...], for rows of unequal length
template <class Make>
at::Tensor by_length(const at::Tensor& wave, const at::Tensor& lengths, Make make) {
  const int64_t samples = wave.size(1);
  if (!lengths.defined() || lengths.eq(samples).all().item<bool>()) return make(wave);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < wave.size(0); ++row)
    rows.push_back(make(wave.narrow(0, row, 1).narrow(1, 0, lengths[row].item<int64_t>()))[0]);
  return stack_padded(rows);
}

Item without_sound(const Batch& batch, const TokenColumns& columns) {
  Item item;
  for (const TokenColumn& column : columns.list) item.add(column.name, batch[column.name][0]);
  for (const char* name : {"path", "text"}) item.words[name] = batch.words(name).front();
  return item;
}

}  // namespace

std::vector<int64_t> Tokenizers::rates_hz() const {
  std::vector<int64_t> rates;
  if (semantic) rates.push_back(semantic->rate_hz());
  if (codec) rates.push_back(codec->rate_hz());
  if (joint && rates.empty()) rates.push_back(joint->rate_hz());
  return rates;
}

std::vector<int64_t> Tokenizers::multiples() const {
  std::vector<int64_t> multiples;
  if (semantic) multiples.push_back(semantic->samples_per_token());
  if (codec) multiples.push_back(codec->samples_per_frame());
  return multiples;
}

TokenColumns Tokenizers::columns() const {
  TokenColumns columns;
  if (semantic)
    columns.list.push_back({"semantic", semantic->identity(), semantic->codebook_size(), 0,
                            semantic->tokens_per_second(), semantic->rate_hz()});
  if (codec)
    columns.list.push_back({"acoustic", codec->identity(), codec->codebook_size(), codec->quantizers(),
                            codec->frames_per_second(), codec->rate_hz()});
  if (text) columns.list.push_back({"text_features", text->identity(), 0, text->dim(), 0, 0});
  if (joint) columns.list.push_back({"joint", joint->identity(), 0, joint->dim(), 0, joint->rate_hz()});
  return columns;
}

void Tokenizers::add_columns(Batch& batch) const {
  const at::NoGradGuard no_grad;
  size_t rate = 0;
  const auto tokens = [&](const char* name, const auto& make) {
    const std::string wave = wave_column(rate++);
    batch.set(name, by_length(batch[wave], batch.find(Batch::length_column(wave)), make));
  };
  if (semantic) tokens("semantic", [&](const at::Tensor& wave) { return semantic->tokenize(wave); });
  if (codec) tokens("acoustic", [&](const at::Tensor& wave) { return codec->encode(wave); });
  if (text) batch.set("text_features", text->encode(batch.words("text")).embeddings);
  if (joint) {
    const std::string wave = wave_column(0);
    batch.set("joint",
              joint->embed_audio(batch[wave], rates_hz().front(), batch.find(Batch::length_column(wave))));
  }
}

TokenizeResult tokenize_recordings(const std::vector<ManifestEntry>& entries, const Tokenizers& tokenizers,
                                   const std::string& folder, const TokenizeOptions& options) {
  require(tokenizers.semantic || tokenizers.codec || tokenizers.joint,
          "[tokens] nothing to make of the sound; give a semantic tokenizer, a codec, a joint embedding, or "
          "several");
  require(!tokenizers.text || std::any_of(entries.begin(), entries.end(),
                                          [](const ManifestEntry& entry) { return !entry.text.empty(); }),
          "[tokens] none of the {} recordings has a text that could be encoded; leave the text encoder out",
          entries.size());
  const TokenColumns columns = tokenizers.columns();
  std::vector<std::string> paths;
  for (const ManifestEntry& entry : entries) paths.push_back(entry.path);
  const TokenFolderWriter writer(folder, columns, paths, options.files_per_shard);

  RecordingsConfig config;
  config.rates_hz = tokenizers.rates_hz();
  const AudioDataset dataset(entries, config);
  TokenizeResult result;
  const auto count = static_cast<int64_t>(entries.size());
  for (int64_t shard = 0; shard < writer.shards(); ++shard) {
    const int64_t first = writer.first_item(shard), end = writer.end_item(shard);
    if (writer.has(shard)) {
      result.already += end - first;
      if (options.progress) options.progress(end, count);
      continue;
    }
    std::vector<Item> items;
    for (int64_t index = first; index < end; ++index) {
      try {
        Batch batch = collate({dataset.read(index, 0).item()});
        tokenizers.add_columns(batch);
        items.push_back(without_sound(batch, columns));
        ++result.files;
      } catch (const std::exception& error) {
        ++result.failed;
        if (options.on_failure) options.on_failure(entries[static_cast<size_t>(index)].path, error.what());
      }
      if (options.progress) options.progress(index + 1, count);
    }
    writer.write(shard, items);
  }
  return result;
}

}  // namespace melete
