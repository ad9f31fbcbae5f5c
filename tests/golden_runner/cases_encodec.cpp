// EnCodec against Meta's, through audiolm-pytorch's wrapper.
#include "golden.h"
#include "nn/frozen.h"
#include "pretrained/encodec_names.h"

namespace melete::golden::cases_encodec {

namespace {

// audiolm-pytorch hands the rows of a batch to encodec's overlap-add of segments, one sample apart: all rows
// end up in one wave. Our decoder keeps them apart; the reference value is that mixture of them.
at::Tensor mixed_rows(const at::Tensor& waves) {  // [batch, samples] -> [1, 1, samples + batch - 1]
  const int64_t batch = waves.size(0), samples = waves.size(1);
  const at::Tensor position = at::arange(1, samples + 1, at::kFloat) / static_cast<double>(samples + 1);
  const at::Tensor weight = 0.5 - (position - 0.5).abs();
  const at::Tensor sum = at::zeros({samples + batch - 1}), weights = at::zeros({samples + batch - 1});
  for (int64_t row = 0; row < batch; ++row) {
    sum.narrow(0, row, samples).add_(weight * waves[row]);
    weights.narrow(0, row, samples).add_(weight);
  }
  return (sum / weights).view({1, 1, -1});
}

void check_encodec(const Case& c, Checker& check) {
  const FrozenScope frozen;
  Encodec model = foreign_encodec::load(foreign_encodec::from_arguments(c.config), c.weights, c.name);
  const at::Tensor wave = c.in("wave");
  const at::Tensor encoded = model->encode(wave.dim() == 2 ? wave.unsqueeze(1) : wave);
  if (c.has("out.encoder")) check.close("encoder", encoded, c.out("encoder"));
  const at::Tensor codes = model->quantize(encoded);
  check.close("codes", codes, c.out("codes"));
  if (c.has("out.emb")) check.close("emb", model->vectors(codes), c.out("emb"));
  const at::Tensor decoded = model->decode(model->vectors(codes));
  if (c.has("out.decoded")) check.close("decoded", decoded, c.out("decoded"));

  const EncodecCodec codec(model);
  const at::Tensor waves = codec.decode(c.out("codes"));
  if (c.has("out.decode_from_codebook_indices_row0"))
    check.close("decode_from_codebook_indices_row0", waves.narrow(0, 0, 1).unsqueeze(1),
                c.out("decode_from_codebook_indices_row0"));
  if (c.has("out.decode_from_codebook_indices_batch"))
    check.close("decode_from_codebook_indices_batch", mixed_rows(waves),
                c.out("decode_from_codebook_indices_batch"));
}

const bool registered = register_case("audiolm", "EncodecModel / EncodecWrapper", check_encodec);

}  // namespace

}  // namespace melete::golden::cases_encodec
