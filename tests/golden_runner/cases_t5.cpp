// T5's encoder against Hugging Face's.
#include "golden.h"
#include "nn/frozen.h"
#include "pretrained/t5_names.h"

namespace melete::golden::cases_t5 {

namespace {

void check_t5(const Case& c, Checker& check) {
  const FrozenScope frozen;
  T5Encoder model = huggingface::load_t5(huggingface::t5_config(c.config), c.weights, c.name);
  const at::Tensor mask = c.in("attention_mask").to(at::kBool);
  const at::Tensor hidden = model->forward(c.in("input_ids"), mask);
  check.close("last_hidden_state", hidden, c.out("last_hidden_state"));
  if (c.has("out.encoded_text"))
    check.close("encoded_text", hidden.masked_fill(mask.logical_not().unsqueeze(-1), 0),
                c.out("encoded_text"));
}

const bool registered = register_case("audiolm", "T5EncoderModel", check_t5);

}  // namespace

}  // namespace melete::golden::cases_t5
