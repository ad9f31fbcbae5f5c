// The bytes of web/built/studio.html, taken over by the assembler: no compiler reads them.
        .section .rodata
        .global melete_studio_page_begin
        .global melete_studio_page_end
        .balign 16
melete_studio_page_begin:
        .incbin MELETE_STUDIO_PAGE
melete_studio_page_end:
        .byte 0
        .section .note.GNU-stack, "", %progbits
