// Words as ids without a vocabulary file: every word has the id that its hash gives it. For small data sets,
// where a model should not have to learn to spell.
#pragma once

#include "data/text_tokenizer.h"

namespace melete {

// Words are runs of letters and digits, in lower case; what is between them is left out. Two words share an
// id with a chance of one in 8,190.
class WordTokenizer final : public TextTokenizer {
 public:
  WordTokenizer();
  std::string kind() const override { return "words"; }
  int64_t vocabulary() const override { return 8192; }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view text) const override;
  // A hash cannot be undone: "<id>" for every word.
  std::string text(const std::vector<int64_t>& ids) const override;

 private:
  std::string identity_;
};

}  // namespace melete
