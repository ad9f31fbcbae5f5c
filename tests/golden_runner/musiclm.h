// What the reference cases of MuLaN and MusicLM share.
#pragma once

#include "data/text_tokenizer.h"
#include "golden.h"
#include "systems/musiclm/embed_quantizer.h"
#include "systems/musiclm/foreign_names.h"
#include "systems/musiclm/mulan.h"

namespace melete::golden {

// The draws of musiclm's cases, by what they are for.
class MulanDraws : public Draws {
 public:
  MulanDraws(const Case& recorded, const std::string& prefix);

  int64_t integer(std::string_view what, int64_t low, int64_t high) override;
  at::Tensor rows(std::string_view what, int64_t population, int64_t count) override;
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override;
  at::Tensor normal(std::string_view what, at::IntArrayRef shape) override;

 private:
  at::Tensor patches_, masks_;  // of patch dropout, of SpecAugment
  int64_t masks_used_ = 0;
  std::deque<at::Tensor> vectors_;  // numbers of vectors, of k-means and of dead codes
};

// Ids as upstream masks them: what equals the padding id is not there.
musiclm::TextInput padded_text(const at::Tensor& ids, int64_t pad_id = 0);
// The mask of a text is given, or made of the padding id that the tower's arguments name.
musiclm::TextInput text_of(const Case& c, const at::Tensor& ids, const nlohmann::ordered_json& tower);

musiclm::Mulan load_mulan(const Case& c, const std::string& their_prefix = "",
                          const char* audio = "audio_transformer", const char* text = "text_transformer");

// CLIP's tokenizer, whose list of merges stands beside the cases; null where it does not.
std::shared_ptr<const TextTokenizer> clip_tokenizer(const Case& c);

// Softmax ignores what is added to all scores of a head, as the last bias of the position network is: its
// gradient is zero but for rounding, and a trainer moves it anywhere.
bool softmax_ignores(const std::string& theirs);

bool trains(const Case& c);  // whether its mode is training
void check_gradients(const Case& c, Checker& check, const torch::nn::Module& module,
                     const musiclm_pytorch::Place& place);

}  // namespace melete::golden
