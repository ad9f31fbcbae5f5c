// CLIP's tokenizer, as musiclm-pytorch uses it.
#include <fstream>

#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "musiclm.h"

namespace melete::golden::musiclm_tokenizer_cases {

using nlohmann::ordered_json;

namespace {

at::Tensor as_tensor(const std::vector<int64_t>& ids) {
  return at::tensor(ids, at::kLong);
}

void check_tokenizer(const Case& c, Checker& check) {
  expect_only(c.config, {"vocab_size", "vocabulary"});
  const std::string file = c.json.at("vocabulary").at("file").get<std::string>();
  const ClipTokenizer tokenizer(c.folder + "/" + file);
  if (tokenizer.vocabulary() != c.config.at("vocab_size").get<int64_t>())
    check.fail(fmt::format("{} ids, expected {}", tokenizer.vocabulary(), c.config["vocab_size"].dump()));
  std::ifstream rows(c.folder + "/tokens.json");
  for (const auto& row : ordered_json::parse(rows)) {
    const std::string text = row.at("text").get<std::string>();
    const std::vector<int64_t> ids = tokenizer.pieces(text);
    check.close(text, as_tensor(ids), as_tensor(row.at("ids").get<std::vector<int64_t>>()));
    // Upstream's own decoding loses "!"; what ours gives back must encode to the same ids.
    if (tokenizer.pieces(tokenizer.text(ids)).size() == ids.size())
      check.close(text + ", and back", as_tensor(tokenizer.pieces(tokenizer.text(ids))), as_tensor(ids));
  }
  const auto texts = c.json.at("inputs").at("batch_texts").at("value").get<std::vector<std::string>>();
  const musiclm::TokenizedTexts batch = musiclm::tokenize(tokenizer, texts, 256);
  check.close("batch_ids", batch.input.ids, c.out("batch_ids"));
}

const bool registered = register_case("musiclm", "x_clip.tokenizer.SimpleTokenizer", check_tokenizer);

}  // namespace

}  // namespace melete::golden::musiclm_tokenizer_cases
