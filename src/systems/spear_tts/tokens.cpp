#include "systems/spear_tts/tokens.h"

namespace melete::spear_tts {

at::Tensor without_repeats(const at::Tensor& ids) {
  const at::Tensor plain = ids.to(at::kCPU, at::kLong).contiguous();
  std::vector<Item> rows(static_cast<size_t>(plain.size(0)));
  for (int64_t row = 0; row < plain.size(0); ++row) {
    const int64_t* const tokens = plain.data_ptr<int64_t>() + row * plain.size(1);
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < plain.size(1); ++i)
      if (tokens[i] != kPadding && (kept.empty() || kept.back() != tokens[i])) kept.push_back(tokens[i]);
    rows[static_cast<size_t>(row)].add("ids", at::tensor(kept, at::kLong));
  }
  return collate(rows)["ids"].to(ids.device());
}

void SpearColumns::add(Batch& batch) const {
  if (!repeats) batch.set("semantic", without_repeats(batch["semantic"]));
  if (!with_text) return;
  std::vector<Item> rows;
  for (const std::string& words : batch.words("text"))
    rows.emplace_back().add("ids", at::tensor(text->pieces(words), at::kLong));
  batch.set("text", collate(rows)["ids"]);
}

}  // namespace melete::spear_tts
