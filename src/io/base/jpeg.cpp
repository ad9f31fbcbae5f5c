#include <csetjmp>
#include <cstddef>
#include <cstdio>
// libjpeg's header wants the two before it.
#include <jpeglib.h>

#include <algorithm>

#include "core/base/error.h"
#include "io/base/picture_decoders.h"
#include "io/base/picture_file.h"
#include "io/base/picture_orientation.h"

namespace melete {

namespace {

constexpr int kMostScans = 500;  // of a progressive file; more are a way to keep us busy

// libjpeg reports errors by a function that must not return. It jumps out of the functions below, in which
// nothing needs a destructor.
struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

void on_error(j_common_ptr common) {
  auto* manager = reinterpret_cast<ErrorManager*>(common->err);
  manager->base.format_message(common, manager->message);
  std::longjmp(manager->escape, 1);
}

void on_message(j_common_ptr) {}

void on_progress(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number > kMostScans) {
    auto* manager = reinterpret_cast<ErrorManager*>(common->err);
    std::snprintf(manager->message, sizeof manager->message, "more than %d scans", kMostScans);
    std::longjmp(manager->escape, 1);
  }
}

struct Decompressor {
  jpeg_decompress_struct jpeg{};
  ErrorManager errors{};
  jpeg_progress_mgr progress{};

  Decompressor() {
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.output_message = on_message;
    jpeg_create_decompress(&jpeg);
    progress.progress_monitor = on_progress;
    jpeg.progress = &progress;
  }
  ~Decompressor() { jpeg_destroy_decompress(&jpeg); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
};

bool read_header(Decompressor& d, std::string_view bytes) {
  if (setjmp(d.errors.escape) != 0) return false;
  // Beyond its end the memory source goes on with an end marker: what is missing becomes grey.
  jpeg_mem_src(&d.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_save_markers(&d.jpeg, JPEG_APP0 + 1, 0xFFFF);
  return jpeg_read_header(&d.jpeg, TRUE) == JPEG_HEADER_OK;
}

bool start(Decompressor& d) {
  if (setjmp(d.errors.escape) != 0) return false;
  return jpeg_start_decompress(&d.jpeg) == TRUE;
}

// Rows one by one into `row`, handed on by `store`. False: an error stopped it.
bool read_rows(Decompressor& d, unsigned char* row, void (*store)(void*, unsigned char*, unsigned),
               void* to) {
  if (setjmp(d.errors.escape) != 0) return false;
  while (d.jpeg.output_scanline < d.jpeg.output_height) {
    const unsigned number = d.jpeg.output_scanline;
    JSAMPROW rows[1] = {row};
    if (jpeg_read_scanlines(&d.jpeg, rows, 1) != 1) return false;
    store(to, row, number);
  }
  return true;
}

// round(a * b / 255)
unsigned scaled(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

struct Target {
  DecodedPicture* picture;
  int components;
};

void store_row(void* to, unsigned char* row, unsigned number) {
  const auto* target = static_cast<Target*>(to);
  const auto width = static_cast<size_t>(target->picture->width);
  uint8_t* pixel = target->picture->rgba.data() + static_cast<size_t>(number) * width * 4;
  for (size_t x = 0; x < width; ++x, pixel += 4, row += target->components) {
    if (target->components == 1) {
      pixel[0] = pixel[1] = pixel[2] = row[0];
    } else if (target->components == 4) {  // inks as Adobe stores them: 255 is none
      for (int i = 0; i < 3; ++i) pixel[i] = static_cast<uint8_t>(row[3] - scaled(255u - row[i], row[3]));
    } else {
      std::copy_n(row, 3, pixel);
    }
  }
}

int orientation_of(const jpeg_decompress_struct& jpeg) {
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view block(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker == JPEG_APP0 + 1 && block.starts_with("Exif")) return exif_orientation(block);
  }
  return 1;
}

// Of how many eighths, so that the shorter side stays long enough.
unsigned eighths(unsigned shorter, int at_least) {
  if (at_least <= 0) return 8;
  for (const unsigned part : {1u, 2u, 4u})
    if ((shorter * part + 7) / 8 >= static_cast<unsigned>(at_least)) return part;
  return 8;
}

// A file that was cut inside a marker's segment cannot be read on from there: it ends before that marker.
std::string_view without_cut_marker(std::string_view bytes) {
  constexpr size_t kLongest = 0xFFFF + 2;
  for (size_t back = 2; back <= std::min(bytes.size(), kLongest); ++back) {
    const std::string_view tail = bytes.substr(bytes.size() - back);
    const auto code = static_cast<unsigned char>(tail[1]);
    if (tail[0] != '\xff' || code == 0 || code == 0xff || (code >= 0xd0 && code <= 0xd9)) continue;
    const size_t length = tail.size() < 4 ? kLongest
                                          : static_cast<size_t>(static_cast<unsigned char>(tail[2])) << 8 |
                                                static_cast<unsigned char>(tail[3]);
    return length + 2 > tail.size() ? bytes.substr(0, bytes.size() - back) : bytes;
  }
  return bytes;
}

struct Compressor {
  jpeg_compress_struct jpeg{};
  ErrorManager errors{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Compressor() {
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    jpeg_create_compress(&jpeg);
  }
  ~Compressor() {
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
};

bool compress(Compressor& c, const uint8_t* rgb, int width, int height, int quality) {
  if (setjmp(c.errors.escape) != 0) return false;
  jpeg_mem_dest(&c.jpeg, &c.bytes, &c.size);
  c.jpeg.image_width = static_cast<JDIMENSION>(width);
  c.jpeg.image_height = static_cast<JDIMENSION>(height);
  c.jpeg.input_components = 3;
  c.jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&c.jpeg);
  c.jpeg.optimize_coding = TRUE;
  jpeg_set_quality(&c.jpeg, quality, TRUE);
  jpeg_start_compress(&c.jpeg, TRUE);
  while (c.jpeg.next_scanline < c.jpeg.image_height) {
    JSAMPROW rows[1] = {const_cast<uint8_t*>(rgb + static_cast<size_t>(c.jpeg.next_scanline) *
                                                       static_cast<size_t>(width) * 3)};
    jpeg_write_scanlines(&c.jpeg, rows, 1);
  }
  jpeg_finish_compress(&c.jpeg);
  return true;
}

}  // namespace

DecodedPicture decode_jpeg(std::string_view whole, const std::string& where, int shorter_side_at_least,
                           bool with_pixels) {
  Decompressor d;
  const std::string_view bytes = without_cut_marker(whole);
  require(read_header(d, bytes), "[{}] damaged JPEG picture: {}", where, d.errors.message);
  check_picture_size(d.jpeg.image_width, d.jpeg.image_height, where);
  DecodedPicture picture;
  picture.width = static_cast<int>(d.jpeg.image_width);
  picture.height = static_cast<int>(d.jpeg.image_height);
  picture.grey = d.jpeg.jpeg_color_space == JCS_GRAYSCALE;
  picture.orientation = orientation_of(d.jpeg);
  if (!with_pixels) return picture;
  // A block of 8 x 8 pixels takes a bit or more; of a picture that is nearly all missing nothing is shown.
  const uint64_t pixels = static_cast<uint64_t>(d.jpeg.image_width) * d.jpeg.image_height;
  require(pixels / 512 / 64 <= bytes.size(), "[{}] damaged: {} bytes cannot hold {} x {} pixels", where,
          bytes.size(), d.jpeg.image_width, d.jpeg.image_height);

  const bool inks = d.jpeg.jpeg_color_space == JCS_CMYK || d.jpeg.jpeg_color_space == JCS_YCCK;
  d.jpeg.out_color_space = picture.grey ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
  d.jpeg.scale_num = eighths(std::min(d.jpeg.image_width, d.jpeg.image_height), shorter_side_at_least);
  d.jpeg.scale_denom = 8;
  require(start(d), "[{}] damaged JPEG picture: {}", where, d.errors.message);
  picture.width = static_cast<int>(d.jpeg.output_width);
  picture.height = static_cast<int>(d.jpeg.output_height);
  picture.rgba.assign(static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 4, 0);
  for (size_t i = 3; i < picture.rgba.size(); i += 4) picture.rgba[i] = 255;
  const int components = picture.grey ? 1 : inks ? 4 : 3;
  std::vector<unsigned char> row(static_cast<size_t>(picture.width) * static_cast<size_t>(components));
  Target target{&picture, components};
  const bool complete = read_rows(d, row.data(), store_row, &target);
  picture.damaged = !complete || d.errors.base.num_warnings > 0;
  return picture;
}

std::string encode_jpeg(const Image& image, int quality) {
  Compressor c;
  require(compress(c, image.rgb.data(), image.width, image.height, quality),
          "[jpeg] the picture cannot be encoded: {}", c.errors.message);
  return {reinterpret_cast<const char*>(c.bytes), c.size};
}

}  // namespace melete
