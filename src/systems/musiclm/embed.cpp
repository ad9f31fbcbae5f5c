#include "systems/musiclm/embed.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "io/audio_tensor.h"

namespace melete::musiclm {

namespace {

// Waves of unequal length -> [waves, dim]
at::Tensor embed_waves(const JointEmbedding& embedding, const std::vector<at::Tensor>& waves) {
  std::vector<int64_t> lengths;
  for (const at::Tensor& wave : waves) lengths.push_back(wave.size(0));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor batch = at::zeros({static_cast<int64_t>(waves.size()), longest});
  for (size_t i = 0; i < waves.size(); ++i)
    batch[static_cast<int64_t>(i)].narrow(0, 0, lengths[i]).copy_(waves[i]);
  return embedding.embed_audio(batch, embedding.rate_hz(), at::tensor(lengths, at::kLong));
}

// Rows by what they stand for.
using Known = std::map<std::string, at::Tensor>;

std::string key_of(const EmbeddedItem& item) {
  return item.path.empty() ? item.text : fmt::format("{}\n{}", item.path, item.frames);
}

// make(first, end of the items still to do) -> their vectors, undefined rows for those that failed
template <class Make>
EmbedResult embed_all(const JointEmbedding& embedding, const std::string& side,
                      const std::vector<EmbeddedItem>& items, const std::string& path,
                      const EmbedOptions& options, Make make) {
  require(options.batch >= 1 && options.save_every >= 1, "[embed] expected batches of at least 1");
  EmbeddingFolder folder(path, embedding.identity(), side);
  Known known;
  const Embeddings& before = folder.before();
  for (size_t i = 0; i < before.items.size(); ++i)
    known[key_of(before.items[i])] = before.vectors[static_cast<int64_t>(i)];
  std::vector<EmbeddedItem> missing;
  for (const EmbeddedItem& item : items)
    if (!known.count(key_of(item))) missing.push_back(item);

  EmbedResult result;
  result.already = static_cast<int64_t>(items.size() - missing.size());
  std::vector<at::Tensor> rows;  // of the part that is not yet written
  std::vector<EmbeddedItem> part;
  const auto write_part = [&] {
    if (!part.empty()) folder.add_part(at::stack(rows), part);
    rows.clear();
    part.clear();
  };
  for (size_t first = 0; first < missing.size(); first += static_cast<size_t>(options.batch)) {
    const size_t end = std::min(first + static_cast<size_t>(options.batch), missing.size());
    const std::vector<EmbeddedItem> some(missing.begin() + static_cast<ptrdiff_t>(first),
                                         missing.begin() + static_cast<ptrdiff_t>(end));
    const std::vector<at::Tensor> made = make(some, result);
    for (size_t i = 0; i < some.size(); ++i) {
      if (!made[i].defined()) continue;
      known[key_of(some[i])] = made[i];
      rows.push_back(made[i]);
      part.push_back(some[i]);
      ++result.made;
    }
    if (static_cast<int64_t>(part.size()) >= options.save_every) write_part();
    if (options.progress)
      options.progress(result.already + static_cast<int64_t>(end), static_cast<int64_t>(items.size()));
  }
  write_part();

  Embeddings whole{embedding.identity(), side, {}, {}};
  std::vector<at::Tensor> vectors;
  for (const EmbeddedItem& item : items) {
    const auto found = known.find(key_of(item));
    if (found == known.end()) continue;
    vectors.push_back(found->second);
    whole.items.push_back(item);
  }
  require(!vectors.empty(), "[embed] none of the {} items could be embedded", items.size());
  whole.vectors = at::stack(vectors);
  folder.finish(whole);
  return result;
}

}  // namespace

EmbedResult embed_recordings(const JointEmbedding& embedding, const std::vector<ManifestEntry>& entries,
                             const std::string& folder, const EmbedOptions& options) {
  std::vector<EmbeddedItem> items;
  for (const ManifestEntry& entry : entries) items.push_back({entry.path, entry.text, entry.frames});
  return embed_all(embedding, "audio", items, folder, options,
                   [&](const std::vector<EmbeddedItem>& some, EmbedResult& result) {
                     std::vector<at::Tensor> made(some.size()), waves;
                     std::vector<size_t> whose;
                     for (size_t i = 0; i < some.size(); ++i) {
                       try {
                         waves.push_back(read_mono(some[i].path, embedding.rate_hz()));
                         whose.push_back(i);
                         result.seconds_of_sound += static_cast<double>(waves.back().size(0)) /
                                                    static_cast<double>(embedding.rate_hz());
                       } catch (const Error& error) {
                         ++result.failed;
                         if (options.on_failure) options.on_failure(some[i].path, error.what());
                       }
                     }
                     if (waves.empty()) return made;
                     const at::Tensor vectors = embed_waves(embedding, waves).to(at::kCPU, at::kFloat);
                     for (size_t i = 0; i < whose.size(); ++i)
                       made[whose[i]] = vectors[static_cast<int64_t>(i)];
                     return made;
                   });
}

EmbedResult embed_texts(const JointEmbedding& embedding, const std::vector<EmbeddedItem>& texts,
                        const std::string& folder, const EmbedOptions& options) {
  return embed_all(embedding, "text", texts, folder, options,
                   [&](const std::vector<EmbeddedItem>& some, EmbedResult&) {
                     std::vector<std::string> words;
                     for (const EmbeddedItem& item : some) words.push_back(item.text);
                     return embedding.embed_text(words).to(at::kCPU, at::kFloat).unbind(0);
                   });
}

at::Tensor embed_files(const JointEmbedding& embedding, const std::vector<std::string>& paths,
                       int64_t batch) {
  std::vector<at::Tensor> parts;
  for (size_t first = 0; first < paths.size(); first += static_cast<size_t>(batch)) {
    std::vector<at::Tensor> waves;
    for (size_t i = first; i < std::min(first + static_cast<size_t>(batch), paths.size()); ++i)
      waves.push_back(read_mono(paths[i], embedding.rate_hz()));
    parts.push_back(embed_waves(embedding, waves).to(at::kCPU, at::kFloat));
  }
  require(!parts.empty(), "[embed] expected at least one recording, got none");
  return at::cat(parts);
}

}  // namespace melete::musiclm
